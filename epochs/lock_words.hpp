// SPDX-License-Identifier: BSD-3-Clause
// The words of the passive-target lock, bit by bit. lock.hpp has the protocol.
#pragma once

#include <cstdint>

#include "epochs/control_block.hpp"
#include "epochs/epoch_state.hpp"

namespace farside::epochs {

// lock, at the target: who is present, that is, holds or waits.
//
//    63        41 40 39        20 19         0
//   |   ticket   | e |  writers  |  readers   |
//
//   ticket   number that the next to come draws; wraps off the top
//   e        the rank is exposed by a post (kept for the rules)
//   writers  exclusive locks held or awaited     (at most 2^20 - 1, so nothing carries)
//   readers  shared locks held or awaited
struct LockWord {
  static constexpr std::uint64_t kReader = 1;
  static constexpr std::uint64_t kWriter = 1ULL << 20;
  static constexpr std::uint64_t kExposed = 1ULL << 40;
  static constexpr std::uint64_t kTicket = 1ULL << 41;
  static constexpr std::uint64_t kTickets = 1ULL << 23;

  // What coming and leaving add.
  static constexpr std::uint64_t come(LockType type) { return kTicket + one(type); }
  static constexpr std::uint64_t leave(LockType type) { return -one(type); }
  // Of the word before: whether who came holds at once, and whether who left has nobody to tell.
  static constexpr bool holds_at_once(std::uint64_t before, LockType type) {
    return writers(before) == 0 && (type == LockType::kShared || readers(before) == 0);
  }
  static constexpr bool nobody_waits(std::uint64_t before, LockType type) {
    return type == LockType::kShared ? writers(before) == 0 : writers(before) == 1 && readers(before) == 0;
  }

  static constexpr std::uint64_t readers(std::uint64_t word) { return word % kWriter; }
  static constexpr std::uint64_t writers(std::uint64_t word) { return (word / kWriter) % kWriter; }
  static constexpr bool exposed(std::uint64_t word) { return (word & kExposed) != 0; }
  static constexpr std::uint64_t ticket(std::uint64_t word) { return word / kTicket; }
  static constexpr std::uint64_t after(std::uint64_t ticket) { return (ticket + 1) % kTickets; }
  // How far `ticket` is behind `earlier`.
  static constexpr std::uint64_t distance(std::uint64_t ticket, std::uint64_t earlier) {
    return (ticket - earlier) % kTickets;
  }

 private:
  static constexpr std::uint64_t one(LockType type) { return type == LockType::kExclusive ? kWriter : kReader; }
};

// Who waits, and on which of its wake words: never 0.
struct WaiterId {
  static constexpr std::uint64_t kNodes = 16;
  static constexpr std::uint64_t make(int rank, std::uint32_t node) {
    return (static_cast<std::uint64_t>(rank) + 1) * kNodes + node;
  }
  static constexpr int rank(std::uint64_t id) { return static_cast<int>(id / kNodes) - 1; }
  static constexpr std::uint32_t wake_word(std::uint64_t id) {
    return ControlBlock::wake_word(static_cast<std::uint32_t>(id % kNodes));
  }
};
static_assert(ControlBlock::kWakeWords <= WaiterId::kNodes);

// drain, at the target: the writer next in turn, and the readers before it.
//
//    63                     24 23            0
//   |  waiter id of the writer |  left (signed) |
//
//   left  readers that unlocked while a writer was present, less those that the writer waits for: whoever brings it
//         to 0 with a writer there is the last, and wakes it
struct DrainWord {
  static constexpr std::uint64_t kOne = 1;
  static constexpr std::uint64_t kWriterShift = 24;

  static constexpr std::int64_t left(std::uint64_t word) {
    return static_cast<std::int64_t>(word << (64 - kWriterShift)) >> (64 - kWriterShift);
  }
  static constexpr std::uint64_t writer(std::uint64_t word) {
    return (word - static_cast<std::uint64_t>(left(word))) >> kWriterShift;
  }
  // What announces a writer that waits for `readers`, and what takes it back when they are gone.
  static constexpr std::uint64_t announce(std::uint64_t writer, std::uint64_t readers) {
    return (writer << kWriterShift) - readers;
  }
  static constexpr std::uint64_t withdraw(std::uint64_t writer) { return -(writer << kWriterShift); }
};

// A slot of the ring, at the target: where the holder of a ticket and the one who passes the turn to it settle who
// came first. 0: empty.
//
//    63       52 51         29 28        3   2     1   0
//   |  unused   |   ticket    |  who      | excl |  state |
//
//   waiting  the holder of the ticket sleeps; who: its waiter id
//   passed   it may go ahead, it only has to come and see
//   turn     the same, and it passes the turn on itself; who: readers that went before it since the last writer
struct RingSlot {
  enum State : std::uint64_t { kEmpty = 0, kWaiting = 1, kPassed = 2, kTurn = 3 };
  static constexpr std::uint64_t kExclusive = 4;
  static constexpr unsigned kWhoShift = 3;
  static constexpr unsigned kTicketShift = 29;

  static constexpr std::uint64_t make(State state, std::uint64_t ticket, std::uint64_t who, bool exclusive = false) {
    return state | (exclusive ? kExclusive : 0) | (who << kWhoShift) | (ticket << kTicketShift);
  }
  static constexpr State state(std::uint64_t slot) { return static_cast<State>(slot % 4); }
  static constexpr bool exclusive(std::uint64_t slot) { return (slot & kExclusive) != 0; }
  static constexpr std::uint64_t who(std::uint64_t slot) { return (slot >> kWhoShift) % (1ULL << (kTicketShift - kWhoShift)); }
  static constexpr std::uint64_t ticket(std::uint64_t slot) { return slot >> kTicketShift; }
  static constexpr bool is_of(std::uint64_t slot, std::uint64_t of) { return slot != kEmpty && ticket(slot) == of; }
};

// wake[i], at the waiter: 0 while it waits.
enum WakeUp : std::uint64_t {
  kHold = 1,          // it holds the lock
  kHoldAndClear = 2,  // it holds the lock, and takes itself out of the drain word
  kAgain = 3,         // its slot was taken from it for an earlier ticket: it comes again
};

}  // namespace farside::epochs
