// SPDX-License-Identifier: BSD-3-Clause
// The use of the bytes that an operation names, and which two uses of the same bytes may overlap in time (MPI 4.0
// section 12.7).
#pragma once

#include <cstdint>

namespace farside::epochs {

enum class Use : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,  // likewise all other atomic updates
  kFetch,       // atomic read: MPI_NO_OP
};

struct AccessKind {
  Use use;
  int element;  // of atomic uses: equal if the two are atomic with respect to each other
};

// Reads may overlap, and so may atomic uses of the same elements. A put overlaps with nothing.
constexpr bool may_conflict(AccessKind a, AccessKind b) {
  const auto reads = [](Use use) { return use == Use::kGet || use == Use::kFetch; };
  const auto is_atomic = [](Use use) { return use == Use::kAccumulate || use == Use::kFetch; };
  if (reads(a.use) && reads(b.use)) return true;
  return is_atomic(a.use) && is_atomic(b.use) && a.element == b.element;
}

// The bytes from `first` to below `last`.
struct ByteRange {
  std::uint64_t first;
  std::uint64_t last;
};

}  // namespace farside::epochs
