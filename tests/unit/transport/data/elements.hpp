// SPDX-License-Identifier: BSD-3-Clause
// Elements of any BasicType with values of the test's choice, and their comparison: gaps of pairs and the padding of
// x87 values do not count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "transport/data/reduce_op.hpp"

namespace farside::testing {

// The value of all bytes before a test writes to them.
inline constexpr std::byte kFilling{0x5A};

#if defined(__SIZEOF_FLOAT128__)
__extension__ typedef __float128 Quad;
#else
using Quad = long double;
#endif

inline std::vector<BasicType> all_types() {
  std::vector<BasicType> types;
  for (std::size_t index = 0; index < kBasicTypes; ++index) types.push_back(static_cast<BasicType>(index));
  return types;
}

inline std::vector<ReduceOp> all_ops() {
  std::vector<ReduceOp> ops;
  for (std::size_t index = 0; index < kReduceOps; ++index) ops.push_back(static_cast<ReduceOp>(index));
  return ops;
}

// One past the last byte of data of an element.
inline std::size_t end_of_data(BasicType type) {
  const BasicTypeTraits& of = traits(type);
  return of.second == 0 ? of.size : std::size_t{of.second} + of.size - of.first;
}

// True for bytes of an element that hold data.
inline bool is_data(BasicType type, std::size_t byte) {
  const BasicTypeTraits& of = traits(type);
  const bool x87 = std::numeric_limits<long double>::digits == 64;
  if (x87 && (type == BasicType::kLongDouble || type == BasicType::kComplexLongDouble)) return byte % 16 < 10;
  if (of.second == 0) return byte < of.size;
  if (x87 && type == BasicType::kLongDoubleInt && byte >= 10 && byte < 16) return false;
  return byte < of.first || (byte >= of.second && byte < end_of_data(type));
}

inline bool same_elements(BasicType type, const std::byte* one, const std::byte* other, std::size_t count) {
  const std::size_t extent = traits(type).extent;
  for (std::size_t at = 0; at < count * extent; ++at) {
    if (is_data(type, at % extent) && one[at] != other[at]) return false;
  }
  return true;
}

// True for bytes of an element that belong to neither of its parts.
inline bool is_gap(BasicType type, std::size_t byte) {
  const BasicTypeTraits& of = traits(type);
  return has_gap(type) && ((byte >= of.first && byte < of.second) || byte >= end_of_data(type));
}

// The gaps in a buffer that was filled with `filling`.
inline bool gaps_hold(BasicType type, const std::byte* buffer, std::size_t count, std::byte filling) {
  const std::size_t extent = traits(type).extent;
  for (std::size_t at = 0; at < count * extent; ++at) {
    if (is_gap(type, at % extent) && buffer[at] != filling) return false;
  }
  return true;
}

template <class T>
void put_value(std::byte*& at, int value) {
  const T element = static_cast<T>(value);
  std::memcpy(at, &element, sizeof element);
  at += sizeof element;
}

template <class V, class I>
void put_pair(BasicType type, std::byte*& at, int value, int index) {
  std::byte* second = at + traits(type).second;
  put_value<V>(at, value);
  put_value<I>(second, index);
}

// `count` elements with small values that depend on `seed`; gaps keep what they hold.
inline void fill_elements(BasicType type, std::byte* buffer, std::size_t count, unsigned seed) {
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* at = buffer + i * traits(type).extent;
    seed = seed * 1664525 + 1013904223;
    const int value = static_cast<int>(seed >> 16) % 7;
    const int other = static_cast<int>(seed >> 24) % 5;
    switch (type) {
      case BasicType::kFloat: put_value<float>(at, value); break;
      case BasicType::kDouble: put_value<double>(at, value); break;
      case BasicType::kLongDouble: put_value<long double>(at, value); break;
      case BasicType::kComplexFloat: put_value<float>(at, value), put_value<float>(at, other); break;
      case BasicType::kComplexDouble: put_value<double>(at, value), put_value<double>(at, other); break;
      case BasicType::kComplexLongDouble: put_value<long double>(at, value), put_value<long double>(at, other); break;
      case BasicType::kLogical1:
      case BasicType::kLogical2:
      case BasicType::kLogical4:
      case BasicType::kLogical8:
        std::memset(at, 0, traits(type).size);
        at[0] = std::byte(value & 1);
        break;
      case BasicType::kFloatInt: put_pair<float, std::int32_t>(type, at, value, other); break;
      case BasicType::kDoubleInt: put_pair<double, std::int32_t>(type, at, value, other); break;
      case BasicType::kLongInt: put_pair<std::int64_t, std::int32_t>(type, at, value, other); break;
      case BasicType::kInt32Int32: put_pair<std::int32_t, std::int32_t>(type, at, value, other); break;
      case BasicType::kShortInt: put_pair<std::int16_t, std::int32_t>(type, at, value, other); break;
      case BasicType::kLongDoubleInt: put_pair<long double, std::int32_t>(type, at, value, other); break;
      case BasicType::kFloatFloat: put_pair<float, float>(type, at, value, other); break;
      case BasicType::kDoubleDouble: put_pair<double, double>(type, at, value, other); break;
      case BasicType::kQuad:
      case BasicType::kComplexQuad:
        put_value<Quad>(at, value);
        if (type == BasicType::kComplexQuad) put_value<Quad>(at, other);
        break;
      default:  // integers, bytes and characters, little endian or not
        std::memset(at, value, traits(type).size);
        break;
    }
  }
}

}  // namespace farside::testing
