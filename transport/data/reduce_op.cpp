// SPDX-License-Identifier: BSD-3-Clause
// The names of the operations, and the types that each is allowed on. The kernels are in combine.cpp.
#include "transport/data/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/data/elements.hpp"

namespace farside {
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
