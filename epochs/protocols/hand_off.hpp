// SPDX-License-Identifier: BSD-3-Clause
// How the hand-off goes through the ring of a lock: part of AcquireLock and ReleaseLock (lock.hpp).
//
// Passing goes by one compare-and-swap on the slot: the sleeper is found there and woken; or its ticket is taken but
// it has not come yet, then it finds the hand-off in the slot. No call lets in more than kMost: the last of these gets
// the rest to pass on, in its wake word or its slot. Strictly in the order of tickets, so that there is one who passes
// on at a time: a later ticket found waiting in the slot of an earlier one has not been let in by anybody else.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

template <RemoteMemory M, class Lock>
class HandOffLock {
 public:
  static constexpr int kMost = std::min<int>(8, ControlBlock::kRingSlots);

  // From `ticket` on, to waiters of type `group` and, where the hand-off says so, to the next of the other. `holds`:
  // who passes it on is of the group, and counted in the hand-off.
  HandOffLock(M& memory, int target, std::uint64_t ticket, LockType group, HandOff hand_off, bool holds)
      : memory_(memory), ticket_(ticket), hand_off_(hand_off), target_(target), group_(group), holds_(holds) {}

  bool advance() {
    while (operation_.done()) {
      // One wake-up at a time, but beside the look into the next slot.
      if (step_ != Step::kOffer && !wake_.done()) return false;
      switch (step_) {
        case Step::kOffer:
          if (hand_off_.is_nothing()) {
            step_ = Step::kDone;
            break;
          }
          memory_.compare_and_swap(operation_, target_, Lock::ring_word(ticket_), expected_,
                                   RingSlot::make(RingSlot::kHandOff, ticket_, offer().bits(), group_));
          step_ = Step::kOffered;
          break;
        case Step::kOffered: take_answer(operation_.value()); break;
        case Step::kAnnounced: {
          const std::uint64_t drain = operation_.value();
          if (DrainWord::departed(drain) == static_cast<std::int64_t>(hand_off_.count)) {
            wake(WakeValue::make(WakeValue::kDrained, HandOff::released_by_successor(hand_off_.count)));
          }
          step_ = Step::kDone;
          break;
        }
        case Step::kDone: return true;
      }
    }
    return false;
  }
  // The the next owner, if it waits for nobody but the one who passed the hand-off on, which is to wake it; else 0.
  std::uint64_t successor() const { return successor_; }
  // An operation that failed, or null. On memory that can fail, a failed operation is never done.
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : wake_.failed() ? &wake_ : nullptr;
  }

 private:
  enum class Step : std::uint8_t { kOffer, kOffered, kAnnounced, kDone };

  // What one whose slot is empty will find: to the next owner the hand-off goes as it is, as it may be the present
  // ticket.
  HandOff offer() const { return hand_off_.to_next ? hand_off_ : remainder(); }
  // What the present ticket, if it is of the group, passes on.
  HandOff remainder() const {
    if (passed_ + 1 < kMost)
      return hand_off_.to_next && hand_off_.count < kMostReleasedBySuccessor ? HandOff::next_after(0) : HandOff{};
    return hand_off_.to_next ? HandOff::next_after(hand_off_.count + 1) : HandOff::members(hand_off_.count - 1);
  }
  void take_answer(std::uint64_t slot) {
    step_ = Step::kOffer;
    if (slot == expected_) {
      if (expected_ != RingSlot::kEmpty) {
        waiter_ = RingSlot::what(expected_);
        wake(WakeValue::make(WakeValue::kAgain));
        expected_ = RingSlot::kEmpty;
      }
      // The holder of the ticket will find it.
      if (hand_off_.to_next) {
        step_ = Step::kDone;
      } else {
        next();
      }
    } else if (slot == RingSlot::kEmpty) {
      expected_ = RingSlot::kEmpty;
    } else if (RingSlot::is_later(slot, ticket_)) {
      // It took itself for nearer to the front than it is, and must give way.
      expected_ = slot;
    } else if (!RingSlot::is_of(slot, ticket_)) {
      // Whoever had the slot before has gone ahead and is about to empty it.
      expected_ = RingSlot::kEmpty;
      memory_.pause(operation_, 1);
    } else {
      waiter_ = RingSlot::what(slot);
      expected_ = RingSlot::kEmpty;
      if (RingSlot::type(slot) == group_) {
        let_in();
      } else if (hand_off_.count == 0) {
        wake(WakeValue::make(WakeValue::kHandOff));
        step_ = Step::kDone;
      } else if (holds_ && hand_off_.count == 1) {
        successor_ = waiter_;
        step_ = Step::kDone;
      } else {
        memory_.fetch_add(
            operation_, target_, Lock::drain_word(group_),
            DrainWord::announce(waiter_, hand_off_.count, HandOff::released_by_successor(hand_off_.count)));
        step_ = Step::kAnnounced;
      }
    }
  }
  void let_in() {
    wake(WakeValue::make(WakeValue::kHandOff, remainder().bits()));
    next();
  }
  // The slot of the present ticket is done with.
  void next() {
    hand_off_ = hand_off_.to_next ? HandOff::next_after(hand_off_.count + 1) : HandOff::members(hand_off_.count - 1);
    ticket_ = LockWord::after(ticket_);
    if (++passed_ == kMost) step_ = Step::kDone;
  }
  void wake(std::uint64_t how) { memory_.write(wake_, WaiterId::rank(waiter_), WaiterId::wake_word(waiter_), how); }

  M& memory_;
  typename M::Operation operation_;
  typename M::Operation wake_;
  std::uint64_t ticket_;
  std::uint64_t waiter_ = 0;
  std::uint64_t successor_ = 0;
  std::uint64_t expected_ = RingSlot::kEmpty;  // in the slot: empty, or a later ticket that must give way
  HandOff hand_off_;
  int target_;
  int passed_ = 0;
  LockType group_;
  bool holds_;
  Step step_ = Step::kOffer;
};

}  // namespace farside::epochs
