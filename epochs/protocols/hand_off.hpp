// SPDX-License-Identifier: BSD-3-Clause
// How the hand-off passes through the ring of a lock: part of AcquireLock and ReleaseLock (lock.hpp).
//
// Each step is one compare-and-swap on the slot of the next ticket. If the holder of the ticket waits there, the
// process wakes it. If this holder is the next owner behind admitted members, the process announces it in their drain
// word instead. If the slot is empty, the hand-off is put into the slot, where the holder of the ticket finds it. One
// call admits at most kMost waiters; the last of these receives the rest of the hand-off, by its wake word or its slot,
// and passes it on. The hand-off passes strictly in the order of tickets, so only one process passes it on at a time,
// and a later ticket that waits in the slot of an earlier one has not been admitted yet.
//
// Cost in remote operations: two per admitted waiter, two more where a later ticket must give way, and one for the
// announcement of a next owner.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

template <RemoteMemory M, class Lock>
class PassHandOff {
 public:
  static constexpr int kMost = std::min<int>(8, ControlBlock::kRingSlots);

  // Passes `hand_off` on, from `ticket`, to waiters of type `group` and, if `hand_off` says so, to the next owner of
  // the other group. `holds`: the caller is a member of `group` and counted in the hand-off.
  PassHandOff(M& memory, int target, std::uint64_t ticket, LockType group, HandOff hand_off, bool holds)
      : memory_(memory), ticket_(ticket), hand_off_(hand_off), target_(target), group_(group), holds_(holds) {}

  bool advance() {
    while (operation_.done()) {
      // At most one wake-up is outstanding, next to the compare-and-swap on the next slot.
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
  // The waiter id of the next owner if it waits for the caller only, else 0. The caller must wake it at its departure.
  std::uint64_t successor() const { return successor_; }
  // The operation that failed, or null. A failed operation is never done.
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : wake_.failed() ? &wake_ : nullptr;
  }

 private:
  enum class Step : std::uint8_t { kOffer, kOffered, kAnnounced, kDone };

  // The hand-off that is stored in an empty slot. If it leads to a next owner, it is stored unchanged, because the
  // holder of the present ticket may be the next owner.
  HandOff offer() const { return hand_off_.to_next ? hand_off_ : remainder(); }
  // The hand-off that the holder of the present ticket passes on, if this holder is a member of the group.
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
      // The holder of the ticket will find the hand-off in the slot.
      if (hand_off_.to_next) {
        step_ = Step::kDone;
      } else {
        next();
      }
    } else if (slot == RingSlot::kEmpty) {
      expected_ = RingSlot::kEmpty;
    } else if (RingSlot::is_later(slot, ticket_)) {
      // The later ticket estimated the front too near and must give way.
      expected_ = slot;
    } else if (!RingSlot::is_of(slot, ticket_)) {
      // The holder of an earlier ticket has the lock and is about to empty the slot.
      expected_ = RingSlot::kEmpty;
      memory_.pause(operation_, 1);
    } else {
      waiter_ = RingSlot::what(slot);
      expected_ = RingSlot::kEmpty;
      if (RingSlot::type(slot) == group_) {
        admit();
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
  void admit() {
    wake(WakeValue::make(WakeValue::kHandOff, remainder().bits()));
    next();
  }
  // Proceeds to the next ticket.
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
  std::uint64_t expected_ = RingSlot::kEmpty;  // value of the slot: empty, or that of a later ticket that must give way
  HandOff hand_off_;
  int target_;
  int passed_ = 0;
  LockType group_;
  bool holds_;
  Step step_ = Step::kOffer;
};

}  // namespace farside::epochs
