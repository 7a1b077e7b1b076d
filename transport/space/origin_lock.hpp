// SPDX-License-Identifier: BSD-3-Clause
// The word of the lock under which origins combine elements of a target in a space without handlers. Adapters change
// it by fetch-adds only. A process takes a ticket, and holds the lock when its ticket is served.
//
//    63          32 31           0
//   |    next     |   serving    |
//
//   next     the ticket that the next process takes; wraps off the top
//   serving  the ticket that holds the lock, or will hold it next; wraps without a carry
#pragma once

#include <cstdint>

namespace farside {

struct OriginLockWord {
  static constexpr std::uint64_t kArrive = 1ULL << 32;

  static constexpr std::uint32_t next(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
  static constexpr std::uint32_t serving(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  // The number of processes that hold the lock or wait for it before the ticket; 0: the ticket holds the lock.
  static constexpr std::uint32_t ahead(std::uint64_t word, std::uint32_t ticket) { return ticket - serving(word); }
  // The value that the holder of the ticket adds to depart.
  static constexpr std::uint64_t depart(std::uint32_t ticket) { return ticket == UINT32_MAX ? 1 - kArrive : 1; }
};

}  // namespace farside
