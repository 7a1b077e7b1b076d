// SPDX-License-Identifier: BSD-3-Clause
// The predefined operations of the accumulate family (MPI 4.0 sections 6.9.2 and 12.3.4), and the kernels that
// apply them. Two ways exist to be atomic per element, and all accesses to one location must agree on one:
//   - kAtomic: one CPU atomic or a compare-and-swap loop per element (elements of 4 or 8 bytes, naturally
//     aligned); needs nothing else;
//   - kLocked: plain loops, and the caller holds the accumulate lock of the region.
#pragma once

#include <array>
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
extern const std::array<std::uint16_t, kBasicTypes> allowed_operations;  // a bit per ReduceOp
inline bool allowed(ReduceOp op, BasicType type) {
  return ((allowed_operations[static_cast<std::size_t>(type)] >> static_cast<unsigned>(op)) & 1) != 0;
}

enum class AtomicMethod : std::uint8_t { kAtomic, kLocked };

inline bool has_cpu_atomics(BasicType type) { return traits(type).cpu_atomics; }

// The way for an access to `type` at `address`: kAtomic where the type allows it and the address is naturally
// aligned. Every process sees a region at the same alignment, so that all agree.
inline AtomicMethod atomic_method(BasicType type, const void* address) {
  const BasicTypeTraits& of = traits(type);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(address) & (std::size_t{of.size} - 1)) == 0;
  return of.cpu_atomics && aligned ? AtomicMethod::kAtomic : AtomicMethod::kLocked;
}

// target[i] = target[i] op origin[i] for i < count; both in the memory layout of `type` (extent apart). With
// kAtomic each element is read and replaced in one step. The three buffers may not overlap. If `fetched` is
// not null it receives the elements of target as they were before (gaps of pair types are left alone). With
// kNoOp origin is not read and may be null. Only target need be aligned, and only for kAtomic.
// Precondition: allowed(op, type); for kAtomic atomic_method(...) == kAtomic.
void combine(AtomicMethod method, ReduceOp op, BasicType type, void* target, const void* origin, void* fetched,
             std::size_t count);

// Rows of `count` elements with kLocked, each so many bytes behind the one before: short ones are brought together,
// combined as one row, and put back (1,024 single doubles: 1.3 us instead of 9).
struct RowStrides {
  std::ptrdiff_t target, origin, fetched;
};
void combine_rows(ReduceOp op, BasicType type, std::byte* target, const std::byte* origin, std::byte* fetched,
                  std::size_t count, std::size_t rows, const RowStrides& strides);

// fetched = *target; if (fetched == *compare bitwise) *target = *origin. One element. MPI_Compare_and_swap.
// Precondition: !has_gap(type) (MPI allows integer, logical and byte types only).
void compare_and_swap(AtomicMethod method, BasicType type, void* target, const void* origin, const void* compare,
                      void* fetched);

}  // namespace farside
