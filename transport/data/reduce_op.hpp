// SPDX-License-Identifier: BSD-3-Clause
// The predefined operations of the accumulate family (MPI 4.0 sections 6.9.2 and 12.3.4), and the kernels that
// apply them. Two ways exist to be atomic per element, and all accesses to one location must agree on one:
//   - kAtomic: one CPU atomic or a compare-and-swap loop per element (elements of 1, 2, 4 or 8 bytes, naturally
//     aligned); needs nothing else;
//   - kLocked: plain loops, and the caller holds the accumulate lock of the region.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/data/basic_type.hpp"

namespace farside {

enum class ReduceOp : std::uint8_t {
  kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor, kMinloc, kMaxloc, kReplace, kNoOp,
};
inline constexpr std::size_t kReduceOps = 14;

const char* name(ReduceOp op);

// Whether MPI allows op on type (MPI 4.0 section 6.9.2: integer, floating point, logical, complex, byte, pair).
bool allowed(ReduceOp op, BasicType type);

enum class AtomicWay : std::uint8_t { kAtomic, kLocked };

// Whether elements of this type can be combined by CPU atomics at all (size == extent, of 1, 2, 4 or 8 bytes).
bool has_cpu_atomics(BasicType type);

// Whether the CPU adds to such elements in one atomic step: not to floating-point ones, for which kAtomic is a loop of
// compare-and-swaps.
bool has_cpu_arithmetic(BasicType type);

// The way for an access to `type` at `address`: kAtomic where the type allows it and the address is naturally
// aligned. Every process sees a region at the same alignment, so that all agree.
AtomicWay atomic_way(BasicType type, const void* address);

// target[i] = target[i] op origin[i] for i < count; both in the memory layout of `type` (extent apart). With
// kAtomic each element is read and replaced in one step. The three buffers may not overlap. If `fetched` is
// not null it receives the elements of target as they were before (gaps of pair types are left alone). With
// kNoOp origin is not read and may be null. Only target need be aligned, and only for kAtomic.
// Precondition: allowed(op, type); for kAtomic atomic_way(...) == kAtomic.
void combine(AtomicWay way, ReduceOp op, BasicType type, void* target, const void* origin, void* fetched,
             std::size_t count);

// fetched = *target; if (fetched == *compare bitwise) *target = *origin. One element. MPI_Compare_and_swap.
// Precondition: !has_gap(type) (MPI allows integer, logical and byte types only).
void compare_and_swap(AtomicWay way, BasicType type, void* target, const void* origin, const void* compare,
                      void* fetched);

}  // namespace farside
