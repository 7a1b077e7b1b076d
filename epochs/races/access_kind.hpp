// SPDX-License-Identifier: BSD-3-Clause
// What an operation does to the bytes that it names, and which two of them may meet there while both are under way
// (MPI 4.0 section 12.7).
#pragma once

#include <cstdint>

namespace farside::epochs {

enum class Use : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,  // and whatever updates atomically
  kFetch,       // reads atomically: MPI_NO_OP
};

struct AccessKind {
  Use use;
  int element;  // of the atomic ones: any number that tells apart what is not atomic to each other
};

// Readers may meet; so may atomic operations on the same elements. A put meets nobody.
constexpr bool may_meet(AccessKind a, AccessKind b) {
  const auto reads = [](Use use) { return use == Use::kGet || use == Use::kFetch; };
  const auto is_atomic = [](Use use) { return use == Use::kAccumulate || use == Use::kFetch; };
  if (reads(a.use) && reads(b.use)) return true;
  return is_atomic(a.use) && is_atomic(b.use) && a.element == b.element;
}

// Bytes from `first` to below `last`.
struct ByteRange {
  std::uint64_t first;
  std::uint64_t last;
};

}  // namespace farside::epochs
