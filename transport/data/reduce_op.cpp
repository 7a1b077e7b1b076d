// SPDX-License-Identifier: BSD-3-Clause
// What may be combined, and in which way; the kernels are in combine.cpp.
#include "transport/data/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/data/elements.hpp"

namespace farside {
namespace {

constexpr std::array<const char*, kReduceOps> kNames = {"sum",  "prod", "min",  "max",    "land",   "lor",     "lxor",
                                                        "band", "bor",  "bxor", "minloc", "maxloc", "replace", "no_op"};

template <std::size_t... kIndex>
constexpr std::array<TypeClass, kBasicTypes> make_classes(std::index_sequence<kIndex...>) {
  return {kClassOf<std::tuple_element_t<kIndex, Elements>>...};
}

constexpr auto kClasses = make_classes(std::make_index_sequence<kBasicTypes>());

}  // namespace

const char* name(ReduceOp op) { return kNames[static_cast<std::size_t>(op)]; }

bool allowed(ReduceOp op, BasicType type) { return class_allows(kClasses[static_cast<std::size_t>(type)], op); }

bool has_cpu_atomics(BasicType type) { return !has_gap(type) && traits(type).size <= sizeof(std::uint64_t); }

bool has_cpu_arithmetic(BasicType type) {
  const TypeClass type_class = kClasses[static_cast<std::size_t>(type)];
  return has_cpu_atomics(type) && type_class != TypeClass::kFloating && type_class != TypeClass::kComplex &&
         type_class != TypeClass::kPair;
}

AtomicWay atomic_way(BasicType type, const void* address) {
  if (!has_cpu_atomics(type)) return AtomicWay::kLocked;
  const bool aligned = reinterpret_cast<std::uintptr_t>(address) % traits(type).size == 0;
  return aligned ? AtomicWay::kAtomic : AtomicWay::kLocked;
}

}  // namespace farside
