// SPDX-License-Identifier: BSD-3-Clause
// How the hand-off passes through the ring of a lock: part of AcquireLock and ReleaseLock (lock.hpp).
//
// The process reads the slots of the next tickets in one operation. Where a slot names the waiter, the process wakes
// the waiter and empties the slot, and awaits neither. If the waiter is the next owner behind admitted members, the
// process announces it in their drain word instead. If the slot was empty, the process puts the hand-off into it by
// compare-and-swap and the waiter finds it there, unless the waiter has come meanwhile. One call admits at most kMost
// waiters; the last of these receives the rest of the hand-off and passes it on. So only one process passes it on at a
// time, strictly in the order of tickets. The entry of a waiter stays in its slot until the hand-off reaches its
// ticket, so an entry that was read is still there.
//
// A departing writer that also sees the writer behind the next owner names it to the next owner. When that one
// releases the lock, it wakes the writer without its own departure, which the writer makes up for.
//
// Cost in remote operations: one for the slots; two per admitted waiter, one after another only for waiters that come
// to their slots late; two more where a later ticket must give way; one for the announcement of a next owner.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

template <RemoteMemory M>
class PassHandOff {
 public:
  static constexpr std::size_t kMost = std::min<std::size_t>(kMostWordsRead, ControlBlock::kRingSlots);

  // Reads the slots of `ticket` and those behind it, up to the end of the ring.
  PassHandOff(M& memory, LockPlace lock, int target, std::uint64_t ticket)
      : memory_(memory), ticket_(ticket), target_(target), lock_(lock) {
    known_ = std::min<std::size_t>(kMost, ControlBlock::kRingSlots - ticket % ControlBlock::kRingSlots);
    memory_.read(operation_, target_, lock_.ring_word(ticket_), std::span(slots_).first(known_));
  }
  // `slot`: that of `ticket`, which is known already.
  PassHandOff(M& memory, LockPlace lock, int target, std::uint64_t ticket, std::uint64_t slot)
      : memory_(memory), ticket_(ticket), known_(1), target_(target), lock_(lock) {
    slots_[0] = slot;
  }

  // Passes `hand_off` on, from `ticket`, to waiters of type `group` and, if `hand_off` says so, to the next owner of
  // the other group. `holds`: the caller is a member of `group` and counted in the hand-off. `departed`: the former
  // owner has departed; else the next owner departs for it.
  void begin(LockType group, HandOff hand_off, bool holds, bool departed = true) {
    group_ = group;
    hand_off_ = hand_off;
    holds_ = holds;
    departed_ = departed;
    step_ = Step::kOffer;
  }

  // Returns true when it is over: no operation but those that it has posted is outstanding.
  bool advance() {
    while (step_ != Step::kDone && operation_.done()) {
      switch (step_) {
        case Step::kOffer: offer(); break;
        case Step::kOffered: take_answer(operation_.value()); break;
        case Step::kAnnounced: {
          const std::uint64_t drain = operation_.value();
          if (DrainWord::departed(drain) == static_cast<std::int64_t>(hand_off_.count)) {
            wake(waiter_, WakeValue::make(WakeValue::kDrained, HandOff::released_by_successor(hand_off_.count)));
          }
          step_ = Step::kDone;
          break;
        }
        case Step::kRead:
        case Step::kDone: return false;
      }
    }
    return step_ == Step::kDone && operation_.done();
  }
  // The waiter id of the next owner if it waits for the caller only, else 0. The caller must wake it at its departure.
  std::uint64_t successor() const { return successor_; }
  // The operation that failed, or null. A failed operation is never done.
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  enum class Step : std::uint8_t { kRead, kOffer, kOffered, kAnnounced, kDone };

  // The hand-off that is stored in an empty slot. If it leads to a next owner, it is stored unchanged, because the
  // holder of the present ticket may be the next owner.
  HandOff stored() const { return hand_off_.to_next ? hand_off_ : remainder(); }
  // The hand-off that the holder of the present ticket passes on, if this holder is a member of the group.
  HandOff remainder() const {
    if (passed_ + 1 < kMost)
      return hand_off_.to_next && hand_off_.count < kMostReleasedBySuccessor ? HandOff::next_after(0) : HandOff{};
    return hand_off_.to_next ? HandOff::next_after(hand_off_.count + 1) : HandOff::members(hand_off_.count - 1);
  }
  void offer() {
    if (hand_off_.is_nothing()) {
      step_ = Step::kDone;
    } else if (is_known(passed_)) {
      take_waiter(slots_[passed_]);
    } else {
      memory_.compare_and_swap(operation_, target_, lock_.ring_word(ticket_), expected_,
                               RingSlot::make(RingSlot::kHandOff, ticket_, stored().bits(), group_));
      step_ = Step::kOffered;
    }
  }
  // Whether the waiter that many tickets behind the first one was in its slot when the slots were read.
  bool is_known(std::size_t index) const {
    return index < known_ && RingSlot::is_of(slots_[index], LockWord::after(ticket_, index - passed_));
  }
  void take_answer(std::uint64_t slot) {
    step_ = Step::kOffer;
    if (slot == expected_) {
      if (expected_ != RingSlot::kEmpty) {
        wake(RingSlot::what(expected_), WakeValue::make(WakeValue::kAgain));
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
      // The slot of an earlier ticket, which had the lock, is about to be emptied.
      expected_ = RingSlot::kEmpty;
      memory_.pause(operation_, 1);
    } else {
      take_waiter(slot);
    }
  }
  // `slot`: that of the present ticket, with its waiter.
  void take_waiter(std::uint64_t slot) {
    expected_ = RingSlot::kEmpty;
    // Not by a write: other processes may access the slot by compare-and-swap at the same time (remote_memory.hpp).
    memory_.add_unawaited(target_, lock_.ring_word(ticket_), RingSlot::kEmpty - slot);
    waiter_ = RingSlot::what(slot);
    step_ = Step::kDone;
    if (RingSlot::type(slot) == group_) {
      wake(waiter_, WakeValue::make(WakeValue::kHandOff, remainder().bits()));
      step_ = Step::kOffer;
      next();
    } else if (hand_off_.count == 0) {
      wake(waiter_, to_next_owner());
    } else if (holds_ && hand_off_.count == 1) {
      successor_ = waiter_;
    } else {
      memory_.fetch_add(operation_, target_, lock_.drain_word(group_),
                        DrainWord::announce(waiter_, hand_off_.count, HandOff::released_by_successor(hand_off_.count)));
      step_ = Step::kAnnounced;
    }
  }
  std::uint64_t to_next_owner() const {
    if (!departed_) return WakeValue::make(WakeValue::kOwed);
    const bool names_next = !lock_.compatible(opposite(group_)) && is_known(passed_ + 1) &&
                            RingSlot::type(slots_[passed_ + 1]) == opposite(group_);
    return names_next ? WakeValue::make(WakeValue::kWithSuccessor, RingSlot::what(slots_[passed_ + 1]))
                      : WakeValue::make(WakeValue::kHandOff);
  }
  // Proceeds to the next ticket.
  void next() {
    hand_off_ = hand_off_.to_next ? HandOff::next_after(hand_off_.count + 1) : HandOff::members(hand_off_.count - 1);
    ticket_ = LockWord::after(ticket_);
    if (++passed_ == kMost) step_ = Step::kDone;
  }
  void wake(std::uint64_t waiter, std::uint64_t how) {
    memory_.write_unawaited(WaiterId::rank(waiter), WaiterId::wake_word(waiter), how);
  }

  M& memory_;
  typename M::Operation operation_;
  std::array<std::uint64_t, kMost> slots_{};
  std::uint64_t ticket_;
  std::uint64_t waiter_ = 0;
  std::uint64_t successor_ = 0;
  std::uint64_t expected_ = RingSlot::kEmpty;  // value of the slot: empty, or that of a later ticket that must give way
  HandOff hand_off_;
  std::size_t known_;       // slots that were read
  std::size_t passed_ = 0;  // tickets
  int target_;
  LockPlace lock_;
  LockType group_ = LockType::kShared;
  bool holds_ = false;
  bool departed_ = true;
  Step step_ = Step::kRead;
};

// Pacing of the probes of the lock word by a waiter beyond the ring (lock.hpp). The waiter should need few probes,
// and should be in the ring before the hand-off reaches its ticket: a late waiter delays all tickets behind it.
//
// The lock word tells how many processes are in front, and thus about how many hand-offs lie ahead. The time per
// ticket, the pace, is learnt from probes. A pace may look slow only because other waiters were late, and believing
// it would perpetuate the delay. So a slower pace is believed up to 9/8 of the expected one, then up to 3/2 of the last
// one, and probed again beyond that. A faster pace is believed at once; a believed one leads to the slot directly.

class ProbePacing {
 public:
  struct Pause {
    std::uint64_t hand_offs;
    bool probe;  // after the pause; else try the slot
  };

  // The pause, in times of a hand-off, and the hand-offs that seem to have taken place meanwhile.
  struct Seen {
    std::uint64_t paused;
    std::uint64_t hand_offs;
  };

  // The first pause, with so many processes present, at least the length of the ring.
  Pause begin(std::uint64_t writers, std::uint64_t readers, bool writers_share) {
    distance_ = writers + readers;
    // A group that holds together takes about as long as one holder, and a fraction more per member for its wake-up. At
    // the global lock the groups alternate, and the next owner learns how the hand-off continues by two round trips.
    const std::uint64_t groups = writers * readers / distance_;
    const std::uint64_t hand_offs = readers / 8 + (writers_share ? 5 * groups + writers / 8 : groups + writers);
    expected_ = pace_ = std::max<std::uint64_t>(hand_offs * kOne / distance_, 1);
    return pause(true);
  }
  // The next pause, at `distance` from the front. No time but that of pauses has passed since the last call.
  Pause again(std::uint64_t distance) {
    bool probe = false;
    if (paused_ > 0) {
      gone_ = distance_ - std::min(distance, distance_);
      const std::uint64_t seen = paused_ * kOne / std::max<std::uint64_t>(gone_, 1);
      const std::uint64_t believed = pace_ > expected_ ? pace_ * 3 / 2 : pace_ * 9 / 8;
      probe = seen > believed;
      pace_ = std::clamp<std::uint64_t>(probe ? believed : seen, 1, kSlowest);
    }
    distance_ = distance;
    return pause(probe);
  }
  // Between the last two probes; 0 if the waiter slept.
  Seen seen() const { return {paused_before_, gone_ * expected_ / kOne}; }
  // For a hand-off that was in the slot first. By how much the waiter was late is unknown: counts as twice the time.
  Seen late() const { return {paused_, 2 * paused_ * expected_ / std::max<std::uint64_t>(pace_, 1)}; }
  // The waiter slept in between, so the next probe says nothing about the pace.
  void slept() { paused_ = 0; }

 private:
  static constexpr std::uint64_t kOne = 1024;
  static constexpr std::uint64_t kSlowest = kOne << 24;

  Pause pause(bool probe) {
    // Aims at the middle of the ring, so that the waiter may be early or late by half the ring.
    const std::uint64_t rest = distance_ - ControlBlock::kRingSlots / 2;
    paused_before_ = paused_;
    paused_ = std::max<std::uint64_t>(rest * pace_ / kOne, 1);
    return {paused_, probe};
  }

  std::uint64_t distance_ = 0;  // from the front, at the last probe
  std::uint64_t paused_ = 0;    // since the last probe, in hand-offs
  std::uint64_t paused_before_ = 0;
  std::uint64_t gone_ = 0;      // tickets between the last two probes
  std::uint64_t expected_ = 0;  // hand-offs per ticket in units of 1 / kOne, from the groups in front
  std::uint64_t pace_ = 0;      // likewise, as learnt from probes
};

}  // namespace farside::epochs
