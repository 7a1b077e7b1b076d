// SPDX-License-Identifier: BSD-3-Clause
// The word of the lock under which origins combine elements of a target, in a space that has no handlers: fetch-adds
// only, which adapters have. Who comes takes a ticket and holds when it is served, in order.
//
//    63          32 31           0
//   |    next     |   serving    |
//
//   next     the ticket that the next to come takes; wraps off the top
//   serving  the ticket that holds, or that will; wraps without a carry
#pragma once

#include <cstdint>

namespace farside {

struct OriginLockWord {
  static constexpr std::uint64_t kArrive = 1ULL << 32;

  static constexpr std::uint32_t next(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
  static constexpr std::uint32_t serving(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  // How many hold and wait in front of the ticket; 0: it holds.
  static constexpr std::uint32_t ahead(std::uint64_t word, std::uint32_t ticket) { return ticket - serving(word); }
  // What the holder of the ticket adds to leave.
  static constexpr std::uint64_t depart(std::uint32_t ticket) { return ticket == UINT32_MAX ? 1 - kArrive : 1; }
};

}  // namespace farside
