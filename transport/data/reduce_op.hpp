// SPDX-License-Identifier: BSD-3-Clause
// The predefined operations of the accumulate family (MPI 4.0 sections 6.9.2 and 12.3.4), and their kernels. There are
// two methods to be atomic per element, and all concurrent accesses to a location must use the same method:
//   - kAtomic: one CPU atomic or a compare-and-swap loop per element (4 or 8 bytes, naturally aligned), without a lock;
//   - kLocked: plain loops; the caller holds the accumulate lock of the region.
//
// Thread safety: any, under these rules. No function reports errors: the preconditions are the caller's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/data/basic_type.hpp"

namespace farside {

// clang-format off
enum class ReduceOp : std::uint8_t {
  kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor, kMinloc, kMaxloc, kReplace, kNoOp,
};
// clang-format on
inline constexpr std::size_t kReduceOps = 14;

const char* name(ReduceOp op);

// Whether MPI allows op on type (MPI 4.0 section 6.9.2: integer, floating point, logical, complex, byte, pair).
extern const std::array<std::uint16_t, kBasicTypes> allowed_operations;  // one bit per ReduceOp
inline bool allowed(ReduceOp op, BasicType type) {
  return ((allowed_operations[static_cast<std::size_t>(type)] >> static_cast<unsigned>(op)) & 1) != 0;
}

enum class AtomicMethod : std::uint8_t { kAtomic, kLocked };

inline bool has_cpu_atomics(BasicType type) { return traits(type).cpu_atomics; }

// Returns the method for `type` at `address`: kAtomic if the type has CPU atomics and the address is naturally aligned.
// Every process maps a region with the same alignment, so all processes get the same result.
inline AtomicMethod atomic_method(BasicType type, const void* address) {
  const BasicTypeTraits& of = traits(type);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(address) & (std::size_t{of.size} - 1)) == 0;
  return of.cpu_atomics && aligned ? AtomicMethod::kAtomic : AtomicMethod::kLocked;
}

// target[i] = target[i] op origin[i] for i < count. Elements are one extent of `type` apart. With kAtomic each element
// is read and replaced in one step. If `fetched` is not null, it receives the former elements of the target; the gaps
// of pair types are not written. kNoOp does not read `origin`, which may be null. Only `target` need be aligned, and
// only for kAtomic. Preconditions: the three buffers do not overlap; allowed(op, type); for kAtomic
// atomic_method(...) == kAtomic.
void combine(AtomicMethod method, ReduceOp op, BasicType type, void* target, const void* origin, void* fetched,
             std::size_t count);

// The same for the sum of one integer by kAtomic, inline. Word: the unsigned type of its size, 4 or 8 bytes.
template <class Word>
void add_atomic(void* target, const void* origin, void* fetched) {
  Word operand = 0;
  std::memcpy(&operand, origin, sizeof operand);
  const Word old = std::atomic_ref(*static_cast<Word*>(target)).fetch_add(operand, std::memory_order_acq_rel);
  if (fetched != nullptr) std::memcpy(fetched, &old, sizeof old);
}

// Combines rows of `count` elements with kLocked. The strides are the bytes from one row to the next. The function
// copies short rows into one, combines that, and copies the result back (1,024 single doubles: 1.3 us instead of 9).
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
