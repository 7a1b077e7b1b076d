// SPDX-License-Identifier: BSD-3-Clause
// The table of traits(), computed from the C++ types of elements.hpp.
#include "transport/data/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/data/elements.hpp"

namespace farside {

namespace {

constexpr std::array<const char*, kBasicTypes> kNames = {"int8",
                                                         "int16",
                                                         "int32",
                                                         "int64",
                                                         "uint8",
                                                         "uint16",
                                                         "uint32",
                                                         "uint64",
                                                         "float",
                                                         "double",
                                                         "long double",
                                                         "complex float",
                                                         "complex double",
                                                         "complex long double",
                                                         "byte",
                                                         "character",
                                                         "character4",
                                                         "logical1",
                                                         "logical2",
                                                         "logical4",
                                                         "logical8",
                                                         "float-int",
                                                         "double-int",
                                                         "long-int",
                                                         "int-int",
                                                         "short-int",
                                                         "long double-int",
                                                         "float-float",
                                                         "double-double",
                                                         "quad",
                                                         "complex quad"};

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

// The names of the operations, and the types that each is allowed on. The kernels are in combine.cpp.
namespace {

constexpr std::array<const char*, kReduceOps> kOpNames = {
    "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc", "replace", "no_op"};

template <class T>
constexpr std::uint16_t operations_on() {
  unsigned bits = 0;
  for (std::size_t op = 0; op < kReduceOps; ++op) {
    if (class_allows(kClassOf<T>, static_cast<ReduceOp>(op))) bits |= 1U << op;
  }
  return static_cast<std::uint16_t>(bits);
}

template <std::size_t... kIndex>
constexpr std::array<std::uint16_t, kBasicTypes> make_operations(std::index_sequence<kIndex...>) {
  return {operations_on<std::tuple_element_t<kIndex, Elements>>()...};
}

}  // namespace

constinit const std::array<std::uint16_t, kBasicTypes> allowed_operations =
    make_operations(std::make_index_sequence<kBasicTypes>());

const char* name(ReduceOp op) { return kOpNames[static_cast<std::size_t>(op)]; }

}  // namespace farside
