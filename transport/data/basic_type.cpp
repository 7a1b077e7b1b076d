// SPDX-License-Identifier: BSD-3-Clause
// The table of traits(), computed from the C++ types of elements.hpp.
#include "transport/data/basic_type.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include "transport/data/elements.hpp"

namespace farside {
namespace {

// clang-format off
constexpr std::array<const char*, kBasicTypes> kNames = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "long double",
    "complex float", "complex double", "complex long double", "byte", "character", "character4", "logical1",
    "logical2", "logical4", "logical8", "float-int", "double-int", "long-int", "int-int", "short-int",
    "long double-int", "float-float", "double-double", "quad", "complex quad"};
// clang-format on

template <class T>
constexpr BasicTypeTraits traits_of(const char* name) {
  std::size_t first = sizeof(T);
  std::size_t second = 0;
  if constexpr (kClassOf<T> == TypeClass::kPair) {
    first = sizeof(typename T::Value);
    second = offsetof(T, index);
  }
  return {name,
          static_cast<std::uint8_t>(data_size<T>()),
          static_cast<std::uint8_t>(sizeof(T)),
          static_cast<std::uint8_t>(first),
          static_cast<std::uint8_t>(second),
          kHasCpuAtomics<T>};
}

template <std::size_t... kIndex>
constexpr std::array<BasicTypeTraits, kBasicTypes> make_traits(std::index_sequence<kIndex...>) {
  return {traits_of<std::tuple_element_t<kIndex, Elements>>(kNames[kIndex])...};
}

}  // namespace

constinit const std::array<BasicTypeTraits, kBasicTypes> basic_type_traits =
    make_traits(std::make_index_sequence<kBasicTypes>());

}  // namespace farside
