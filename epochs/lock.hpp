// SPDX-License-Identifier: BSD-3-Clause
// The passive-target lock of one rank: a fair reader-writer lock in one 64-bit word, by fetch-add alone.
//
//    63        43 42        22 21         0
//   |    next    |  serving   |  readers   |
//
//   next     ticket that the next to come draws
//   serving  ticket whose turn it is; whoever has its turn passes it on
//   readers  shared holders
//
// All come in ticket order. A shared holder passes the turn on as soon as it holds, an exclusive one when it
// unlocks; an exclusive one holds when its turn has come and no reader is left. So nobody is overtaken, and at most
// one turn passes between two looks of the next waiter. Waiters look again by reading the word.
//
// `serving` must not carry into `next` when it wraps: only the one whose turn it is adds to it, and it knows its own
// ticket, so it takes the carry back in the same step. `next` wraps off the top; `readers` is at most the number of
// ranks. Limits: 2^20 ranks that wait at once, 2^22 - 1 shared holders.
//
// Cost, uncontended: exclusive 1 remote atomic, shared 2, unlock 1. Contended: 1 read per look.
#pragma once

#include <cstdint>

#include "epochs/control_block.hpp"
#include "epochs/epoch_state.hpp"
#include "transport/remote_memory.hpp"

namespace farside::epochs {

struct LockWord {
  static constexpr std::uint64_t kReader = 1;
  static constexpr unsigned kServingShift = 22;
  static constexpr unsigned kNextShift = 43;
  static constexpr std::uint64_t kTickets = 1ULL << 21;
  static constexpr std::uint64_t kNext = 1ULL << kNextShift;
  static constexpr std::uint64_t kServing = 1ULL << kServingShift;

  static std::uint64_t next(std::uint64_t word) { return word >> kNextShift; }
  static std::uint64_t serving(std::uint64_t word) { return (word >> kServingShift) % kTickets; }
  static std::uint64_t readers(std::uint64_t word) { return word % kServing; }
  // What the holder of `ticket` adds to pass the turn on.
  static std::uint64_t pass_turn(std::uint64_t ticket) { return ticket == kTickets - 1 ? kServing - kNext : kServing; }
};

// Takes the lock of `target`. Call advance() until it says true, between other things that must go on; it never
// waits. The object must stay where it is meanwhile.
template <RemoteMemory M>
class AcquireLock {
 public:
  AcquireLock(M& memory, int target, LockType type) : memory_(memory), target_(target), type_(type) {}

  bool advance() {
    while (operation_.done()) {
      switch (step_) {
        case Step::kDraw:
          memory_.fetch_add(operation_, target_, ControlBlock::kLock, LockWord::kNext);
          step_ = Step::kDrawn;
          break;
        case Step::kDrawn:
          ticket_ = LockWord::next(operation_.value());
          step_ = Step::kLook;
          [[fallthrough]];
        case Step::kLook: {
          const std::uint64_t word = operation_.value();
          if (LockWord::serving(word) != ticket_ || (type_ == LockType::kExclusive && LockWord::readers(word) != 0)) {
            memory_.read(operation_, target_, ControlBlock::kLock);
            return false;  // one look per call: the caller paces them
          }
          if (type_ == LockType::kExclusive) {
            step_ = Step::kHeld;
            return true;
          }
          memory_.fetch_add(operation_, target_, ControlBlock::kLock, LockWord::pass_turn(ticket_) + LockWord::kReader);
          step_ = Step::kHeld;
          break;
        }
        case Step::kHeld: return true;
      }
    }
    return false;
  }

  // What ReleaseLock needs, once held.
  std::uint64_t ticket() const { return ticket_; }
  typename M::Operation& operation() { return operation_; }

 private:
  enum class Step : std::uint8_t { kDraw, kDrawn, kLook, kHeld };
  M& memory_;
  typename M::Operation operation_;
  std::uint64_t ticket_ = 0;
  int target_;
  LockType type_;
  Step step_ = Step::kDraw;
};

// Gives the lock back. What was done under it must have completed at the target before.
template <RemoteMemory M>
class ReleaseLock {
 public:
  ReleaseLock(M& memory, int target, LockType type, std::uint64_t ticket) {
    memory.fetch_add(operation_, target, ControlBlock::kLock,
                     type == LockType::kExclusive ? LockWord::pass_turn(ticket) : -LockWord::kReader);
  }
  bool advance() { return operation_.done(); }
  typename M::Operation& operation() { return operation_; }

 private:
  typename M::Operation operation_;
};

}  // namespace farside::epochs
