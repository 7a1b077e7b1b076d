// SPDX-License-Identifier: BSD-3-Clause
// The C++ type of each BasicType, for the kernels: Element<BasicType::kInt32> is std::int32_t. The size, gap and class
// of each type are computed from it. Private to transport/data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "transport/data/reduce_op.hpp"

namespace farside {

#if defined(__SIZEOF_FLOAT128__)
using Quad = __float128;
#else
using Quad = long double;
static_assert(sizeof(Quad) == 16, "a compiler without __float128 is expected to have a binary128 long double");
#endif

template <class T>
struct Complex {
  T real, imaginary;
};

template <class T>
struct Logical {
  T value;
};

template <std::size_t kSize>
struct Opaque {
  std::array<std::byte, kSize> bytes;
};

template <class V, class I>
struct Pair {
  using Value = V;
  using Index = I;
  V value;
  I index;
};

// In the order of enum BasicType.
using Elements =
    std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
               std::uint64_t, float, double, long double, Complex<float>, Complex<double>, Complex<long double>,
               std::byte, Opaque<1>, Opaque<4>, Logical<std::uint8_t>, Logical<std::uint16_t>, Logical<std::uint32_t>,
               Logical<std::uint64_t>, Pair<float, std::int32_t>, Pair<double, std::int32_t>,
               Pair<std::int64_t, std::int32_t>, Pair<std::int32_t, std::int32_t>, Pair<std::int16_t, std::int32_t>,
               Pair<long double, std::int32_t>, Pair<float, float>, Pair<double, double>, Quad, Complex<Quad>>;
static_assert(std::tuple_size_v<Elements> == kBasicTypes);

template <BasicType kType>
using Element = std::tuple_element_t<static_cast<std::size_t>(kType), Elements>;

// The groups of MPI 4.0 section 6.9.2, which determine the operations that are allowed for a type.
enum class TypeClass : std::uint8_t { kInteger, kFloating, kComplex, kByte, kOpaque, kLogical, kPair };

template <class T>
inline constexpr TypeClass kClassOf = std::is_integral_v<T> ? TypeClass::kInteger : TypeClass::kFloating;
template <>
inline constexpr TypeClass kClassOf<std::byte> = TypeClass::kByte;
template <class T>
inline constexpr TypeClass kClassOf<Complex<T>> = TypeClass::kComplex;
template <class T>
inline constexpr TypeClass kClassOf<Logical<T>> = TypeClass::kLogical;
template <std::size_t kSize>
inline constexpr TypeClass kClassOf<Opaque<kSize>> = TypeClass::kOpaque;
template <class V, class I>
inline constexpr TypeClass kClassOf<Pair<V, I>> = TypeClass::kPair;

constexpr bool class_allows(TypeClass type_class, ReduceOp op) {
  switch (op) {
    case ReduceOp::kReplace:
    case ReduceOp::kNoOp: return true;
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return type_class == TypeClass::kInteger || type_class == TypeClass::kFloating ||
             type_class == TypeClass::kComplex;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return type_class == TypeClass::kInteger || type_class == TypeClass::kFloating;
    case ReduceOp::kLand:
    case ReduceOp::kLor:
    case ReduceOp::kLxor: return type_class == TypeClass::kInteger || type_class == TypeClass::kLogical;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor: return type_class == TypeClass::kInteger || type_class == TypeClass::kByte;
    case ReduceOp::kMinloc:
    case ReduceOp::kMaxloc: return type_class == TypeClass::kPair;
  }
  return false;
}

template <class T>
constexpr std::size_t data_size() {
  if constexpr (kClassOf<T> == TypeClass::kPair)
    return sizeof(typename T::Value) + sizeof(typename T::Index);
  else
    return sizeof(T);
}

template <class T>
inline constexpr bool kHasGap = data_size<T>() != sizeof(T);
// BasicTypeTraits::cpu_atomics.
template <class T>
inline constexpr bool kHasCpuAtomics = kClassOf<T> != TypeClass::kFloating&& kClassOf<T> !=
                                           TypeClass::kComplex&& kClassOf<T> != TypeClass::kPair &&
                                       (sizeof(T) == sizeof(std::uint32_t) || sizeof(T) == sizeof(std::uint64_t));

// Loads and stores of elements at any address. A pair is copied by its members: its gap may lie outside the buffer (the
// last element need not have one), and at a target it may hold other data.
template <class T>
inline T load(const std::byte* from) {
  T element;
  if constexpr (kHasGap<T>) {
    std::memcpy(&element.value, from, sizeof(element.value));
    std::memcpy(&element.index, from + offsetof(T, index), sizeof(element.index));
  } else {
    std::memcpy(&element, from, sizeof(T));
  }
  return element;
}

template <class T>
inline void store(std::byte* to, const T& element) {
  if constexpr (kHasGap<T>) {
    std::memcpy(to, &element.value, sizeof(element.value));
    std::memcpy(to + offsetof(T, index), &element.index, sizeof(element.index));
  } else {
    std::memcpy(to, &element, sizeof(T));
  }
}

}  // namespace farside
