// SPDX-License-Identifier: BSD-3-Clause
// A fair lock of two groups over remote memory, by 64-bit fetch-add and compare-and-swap. The groups exclude each
// other. No waiter is overtaken except by members of its own group, and each waiter waits on its own word; only
// waiters beyond the ring read remote memory, after pauses. The protocol has two instances (LockPlace):
//
//   of a target  one per rank. Readers (shared locks) hold it together, a writer (an exclusive lock) holds it alone.
//   global       one per window, at its home rank. lock_alls (readers) hold it together, and so do exclusive locks of
//                any targets (writers). A lock_all acquires no rank's lock. An exclusive lock requests the global lock
//                and its target's lock together, or only the latter if this process has the global lock already.
//
// A process arrives by one fetch-add on the lock word: it takes a ticket and counts itself in its group. It holds the
// lock at once if no incompatible process is present. From the moment both groups are present every arrival waits, in
// ticket order:
//
// - The first arrival of a group, where the other group holds the lock together, is the next owner. (At this time all
//   members of the other group hold the lock or have been admitted to it, because no member of this group was present
//   to make them wait.) The next owner adds its id and the number of these members to their drain word. A member that
//   departs while the other group is present counts in the drain word, and the last departure wakes the next owner.
// - Every other arrival puts its id into the slot of its ticket in the ring and waits on its wake word.
//
// The hand-off passes from ticket to ticket (hand_off.hpp). If no member of the departing group waits, the waiters of
// the other group have consecutive tickets, and it admits exactly these. Otherwise it admits the members before the
// first ticket of the other group, whose holder is the next owner after them.
//
// A writer of a target passes the hand-off on when it unlocks, since it holds alone; if it was contended when it was
// acquired, the departure and the read of the next slots leave together. At the global lock the next owner passes it
// on when it is woken. If the next owner arrived as the first of its group, the addend of the last departure tells it
// how (DrainWord: end).
//
// The hand-off tells the members that precede a next owner that there is one. They count their departure in the drain
// word only, and the next owner releases them, that is, subtracts them from the lock word (LockToken): a writer of a
// target when it departs itself, the next owner of the global lock when it is woken; the former value of the lock word
// then determines how the hand-off continues.
//
// A member that is alone in its group and finds the next owner in a slot while it passes the hand-off on keeps the id
// of the next owner, and wakes it when it departs, without the drain word.
//
// The ring has 256 slots; a window may have more ranks. A waiter that is further from the front takes its slot later,
// at a time that it estimates (ProbePacing), mostly from one read of the lock word. If it is too early, it finds its
// slot taken and reads the lock word again, or must yield the slot to the holder of an earlier ticket.
//
// The objects below are not thread-safe, must not move while they advance, and none of their calls waits for another
// process. A failed operation ends the protocol: failed_operation() returns it once, with the error of the memory, and
// advance() returns true from then on.
//
// Cost in remote operations: uncontended 1 to lock and 1 to unlock; contended: lock.md. One call admits at most
// PassHandOff::kMost waiters. Memory: 8 * (2 + 256 + 8) bytes per rank, and 8 * (3 + 256) for the global lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/hand_off.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// Acquires the lock of a mapped word that CPU atomics change, unless an incompatible process is present or a post
// exposes the rank. `before`: a guess of the word with no lock present; on return, what it held.
// The arrival of an acquisition that succeeds is its compare-and-swap, so no ticket has to wait, and the release is as
// of AcquireLock with the plain token of that ticket.
[[nodiscard]] [[gnu::always_inline]] inline bool try_acquire(std::uint64_t& word, LockType type,
                                                             std::uint64_t& before) {
  for (;;) {
    const std::uint64_t found = ControlWord::compare_and_swap(word, before, before + LockWord::arrive(type));
    if (found == before) [[likely]]
      return true;
    before = found;
    if (!kTargetLock.holds_at_once(before, type) || LockWord::exposed(before)) return false;
  }
}

// Acquires the lock at `target` for rank `self`, which may wait on its wake word `wake_index`. Call advance() until it
// returns true. Where the word is mapped, an uncontended lock needs no object (try_acquire).
template <RemoteMemory M>
class AcquireLock {
 public:
  // `of`: kAll if a lock_all takes the lock of another rank.
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t wake_index = 0, LockOf of = LockOf::kTarget)
      : memory_(memory),
        id_(WaiterId::make(self, wake_index)),
        target_(target),
        type_(type),
        of_(of),
        lock_{of == LockOf::kGlobal} {}
  // Continues after the ticket was taken: `before` is the previous value of the lock word.
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t wake_index, std::uint64_t before)
      : AcquireLock(memory, self, target, type, wake_index) {
    on_ticket(before);
  }

  bool advance() {
    if (failed_) return true;
    if (passing_) {
      const bool passed = passing_->advance();
      return operation_.done() && passed;
    }
    while (operation_.done()) {
      switch (step_) {
        case Step::kTakeTicket:
          memory_.fetch_add(operation_, target_, lock_.word(), LockWord::arrive(type_, of_));
          step_ = Step::kTicketTaken;
          break;
        case Step::kTicketTaken: on_ticket(operation_.value()); break;
        case Step::kProbe:
          memory_.read(operation_, target_, lock_.word());
          step_ = Step::kProbed;
          break;
        case Step::kProbed: probe(operation_.value()); break;
        case Step::kOffer:
          memory_.compare_and_swap(operation_, target_, lock_.ring_word(ticket_), RingSlot::kEmpty, entry());
          step_ = Step::kOffered;
          break;
        case Step::kOffered: on_slot_answer(operation_.value()); break;
        case Step::kTakenOver:
          if (operation_.value() == later_slot_) {
            memory_.write_unawaited(WaiterId::rank(RingSlot::what(later_slot_)),
                                    WaiterId::wake_word(RingSlot::what(later_slot_)),
                                    WakeValue::make(WakeValue::kAgain));
            step_ = Step::kAsleep;
          } else {
            step_ = Step::kOffer;
          }
          break;
        case Step::kAnnounced: {
          const std::uint64_t drain = operation_.value();
          if (DrainWord::departed(drain) == static_cast<std::int64_t>(to_announce_)) {
            drained(first_ ? DrainWord::end(drain) : HandOff::released_by_successor(to_announce_));
            step_ = Step::kHandOff;
          } else {
            step_ = Step::kAsleep;
          }
          to_announce_ = 0;
          break;
        }
        case Step::kAsleep: {
          const std::uint64_t wake_value = memory_.own(WaiterId::wake_word(id_));
          if (wake_value == 0) return false;
          memory_.own_fetch_add(WaiterId::wake_word(id_), -wake_value);
          woken(wake_value);
          break;
        }
        case Step::kHandOff:
          if (to_announce_ > 0) {
            announce(to_announce_);
            break;
          }
          if (predecessors_ > 0 && lock_.compatible(type_)) {
            memory_.fetch_add(operation_, target_, lock_.word(), LockWord::depart(opposite(type_), predecessors_));
            step_ = Step::kReleasedPredecessors;
            break;
          }
          step_ = Step::kHeld;
          if (drained_)
            memory_.add_unawaited(target_, lock_.drain_word(opposite(type_)), DrainWord::withdraw(id_, end_));
          if (hand_off_.is_nothing()) break;
          passing_.emplace(memory_, lock_, target_, LockWord::after(ticket_));
          passing_->begin(type_, hand_off_, true);
          return advance();
        case Step::kReleasedPredecessors: {
          const std::uint64_t before = operation_.value();
          const std::uint64_t others = LockWord::present(before, opposite(type_)) - predecessors_;
          predecessors_ = 0;
          take_hand_off(HandOff::behind(others, LockWord::present(before, type_)));
          step_ = Step::kHandOff;
          break;
        }
        case Step::kHeld: return true;
      }
    }
    return false;
  }

  // Whether the arrival has returned a ticket, so that it is known whether the lock is contended.
  bool has_ticket() const { return step_ > Step::kTicketTaken; }
  // The lock, if this rank waits in its queue.
  std::optional<AwaitedLock> awaited() const {
    const bool waits = !failed_ && has_ticket() && step_ < Step::kHandOff;
    return waits ? std::optional(AwaitedLock{target_, lock_.word()}) : std::nullopt;
  }
  // Ends the wait, as a failure would: the place in the queue stays, and others may wait behind it for ever.
  void stop_waiting() { failed_ = true; }
  bool failed() const { return failed_; }
  // Whether a peer may still write to the wake word after a failure.
  bool may_wake() const { return failed_ && has_ticket() && !held(); }
  // Whether the lock is held, so that it must be released even if passing its hand-off on has failed.
  bool held() const { return step_ == Step::kHeld; }
  // Whether a post exposed the target when the ticket was taken, which is against the rules (MPI 4.0 section 12.5.3).
  bool saw_exposure() const { return saw_exposure_; }
  // The token for ReleaseLock. Precondition: held.
  LockToken token() const {
    if (passing_ && passing_->successor() != 0) return LockToken(ticket_, LockToken::kSuccessor, passing_->successor());
    if (released_by_successor_) return LockToken(ticket_, LockToken::kReleasedBySuccessor);
    if (predecessors_ > 0) return LockToken(ticket_, LockToken::kReleasesPredecessors, predecessors_);
    return LockToken(ticket_, how_, successor_);
  }
  typename M::Operation* failed_operation() {
    auto* const failed = operation_.failed() ? &operation_ : passing_ ? passing_->failed_operation() : nullptr;
    failed_ = failed_ || failed != nullptr;
    return failed;
  }

 private:
  enum class Step : std::uint8_t {
    kTakeTicket,
    kTicketTaken,
    kProbe,
    kProbed,
    kOffer,
    kOffered,
    kTakenOver,
    kAnnounced,
    kAsleep,
    kHandOff,
    kReleasedPredecessors,
    kHeld
  };

  void on_ticket(std::uint64_t before) {
    ticket_ = LockWord::ticket(before);
    saw_exposure_ = LockWord::exposed(before);
    const std::uint64_t own = LockWord::present(before, type_);
    const std::uint64_t others = LockWord::present(before, opposite(type_));
    if (lock_.holds_at_once(before, type_)) {
      step_ = Step::kHeld;
      return;
    }
    how_ = LockToken::kQueued;
    if (own == 0 && lock_.compatible(opposite(type_))) {
      first_ = true;
      announce(others);
    } else if (own + others < ControlBlock::kRingSlots) {
      step_ = Step::kOffer;
    } else {
      wait(pacing_.begin(LockWord::writers(before), LockWord::readers(before), lock_.global));
    }
  }
  // Announces this waiter to `others` members of the other group, which hold the lock now and must depart first.
  void announce(std::uint64_t others) {
    to_announce_ = others;
    memory_.fetch_add(operation_, target_, lock_.drain_word(opposite(type_)),
                      DrainWord::announce(id_, others, first_ ? 0 : HandOff::released_by_successor(others)));
    step_ = Step::kAnnounced;
  }
  void wait(ProbePacing::Pause pause) {
    memory_.pause(operation_, pause.hand_offs);
    unprobed_ = !pause.probe;
    step_ = pause.probe ? Step::kProbe : Step::kOffer;
  }
  void learn(const ProbePacing::Seen& seen) {
    if (seen.paused > 0) memory_.learn_hand_off_time(seen.paused, seen.hand_offs);
  }
  void probe(std::uint64_t word) {
    const std::uint64_t front = LockWord::ticket(word) - LockWord::writers(word) - LockWord::readers(word);
    const std::uint64_t distance = LockWord::distance(ticket_, front);
    // The front is an estimate, because readers depart in any order. It may seem nearer than it is; if this waiter then
    // takes the slot of an earlier ticket, PassHandOff takes the slot back. If the front seems to have passed this
    // ticket, a later ticket has departed, so the hand-off has reached the slot of this ticket.
    if (distance < ControlBlock::kRingSlots || distance >= LockWord::kTickets / 2) {
      unprobed_ = false;
      step_ = Step::kOffer;
      return;
    }
    wait(pacing_.again(distance));
    learn(pacing_.seen());
  }
  void on_slot_answer(std::uint64_t slot) {
    if (slot == RingSlot::kEmpty) {
      step_ = Step::kAsleep;
      return;
    }
    if (!RingSlot::is_of(slot, ticket_)) {
      if (RingSlot::is_later(slot, ticket_)) {
        // The later ticket estimated the front too near and must give way.
        later_slot_ = slot;
        memory_.compare_and_swap(operation_, target_, lock_.ring_word(ticket_), later_slot_, entry());
        step_ = Step::kTakenOver;
      } else if (unprobed_) {
        // An earlier ticket holds the slot and may wait for long.
        step_ = Step::kProbe;
      } else {
        // The slot of an earlier ticket, which had the lock, is about to be emptied.
        memory_.pause(operation_, 1);
        step_ = Step::kOffer;
      }
      return;
    }
    // The hand-off reached the slot before this waiter.
    learn(pacing_.late());
    const HandOff hand_off = HandOff::of(RingSlot::what(slot));
    if (!hand_off.to_next) {
      take_hand_off(hand_off);
    } else if (RingSlot::type(slot) == type_) {
      take_hand_off(HandOff::next_after(hand_off.count + 1));
    } else {
      to_announce_ = hand_off.count;
    }
    // Not by a write: other processes may access the slot by compare-and-swap at the same time (remote_memory.hpp).
    memory_.add_unawaited(target_, lock_.ring_word(ticket_), RingSlot::kEmpty - slot);
    step_ = Step::kHandOff;
  }
  void woken(std::uint64_t wake_value) {
    const std::uint64_t what = WakeValue::what(wake_value);
    switch (WakeValue::how(wake_value)) {
      case WakeValue::kAgain:
        pacing_.slept();
        step_ = Step::kProbe;
        return;
      case WakeValue::kDrained: drained(what); break;
      case WakeValue::kHandOff: take_hand_off(HandOff::of(what)); break;
      case WakeValue::kWithSuccessor:
        how_ = LockToken::kSuccessor;
        successor_ = what;
        break;
      case WakeValue::kOwed: how_ = LockToken::kOwesDeparture; break;
    }
    step_ = Step::kHandOff;
  }
  // The members that this waiter waited for have departed. `end`: what the last departure said (DrainWord::depart).
  void drained(std::uint64_t end) {
    drained_ = true;
    end_ = end;
    if (!first_) {
      predecessors_ = end;
    } else if (lock_.compatible(type_)) {
      take_hand_off(end > 0 ? HandOff::members(end - 1) : HandOff::next_after(1));
    }
  }
  void take_hand_off(HandOff hand_off) {
    released_by_successor_ = hand_off.to_next && hand_off.count <= kMostReleasedBySuccessor;
    hand_off_ = hand_off.count > 0 ? hand_off : HandOff{};
  }
  // The contents of the slot while this waiter waits.
  std::uint64_t entry() const { return RingSlot::make(RingSlot::kWaiting, ticket_, id_, type_); }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassHandOff<M>> passing_;
  std::uint64_t id_;
  std::uint64_t ticket_ = 0;
  ProbePacing pacing_;
  std::uint64_t later_slot_ = 0;    // slot value of a later ticket that must give way
  std::uint64_t to_announce_ = 0;   // members of the other group that must depart first
  std::uint64_t end_ = 0;           // what the last departure said (DrainWord::depart)
  std::uint64_t predecessors_ = 0;  // members of the other group to be taken off the lock word
  std::uint64_t successor_ = 0;     // the next owner, as the former one has named it
  LockToken::How how_ = LockToken::kPlain;
  HandOff hand_off_;  // to be passed on before holding
  int target_;
  LockType type_;
  LockOf of_;
  LockPlace lock_;
  bool failed_ = false;                 // some operation
  bool unprobed_ = false;               // tries the slot without having read the lock word
  bool first_ = false;                  // first of its group at its arrival
  bool drained_ = false;                // the members have departed; its id is still in the drain word
  bool released_by_successor_ = false;  // a member of the other group takes it off the lock word
  bool saw_exposure_ = false;
  Step step_ = Step::kTakeTicket;
};

// Releases a lock. Precondition: the operations issued under the lock have completed at the target, or are ordered
// before the release. `token` is that of AcquireLock.
//
// Where the word is mapped and the token is plain, an uncontended release needs no object: add LockWord::depart(type)
// to the lock word. If nobody_waits() is false for the previous value, pass that value to the second constructor.
template <RemoteMemory M>
class ReleaseLock {
 public:
  // `of`: as given to AcquireLock. `access`: kEnds if the release ends an epoch; the release then takes effect behind
  // the operations of the epoch. kGoesOn if the lock is released during its acquisition, before any operation.
  ReleaseLock(M& memory, int target, LockType type, LockToken token, LockOf of = LockOf::kTarget,
              DataAccess access = DataAccess::kGoesOn)
      : memory_(memory), token_(token), target_(target), type_(type), lock_{of == LockOf::kGlobal} {
    if (holds_alone() && token_.how() == LockToken::kSuccessor) {
      const std::uint64_t next = LockWord::after(token_.ticket());
      passing_.emplace(memory_, lock_, target_, next,
                       RingSlot::make(RingSlot::kWaiting, next, token_.successor(), LockType::kExclusive));
      passing_->begin(opposite(type_), HandOff::next_after(0), false, false);
      step_ = Step::kDone;
    } else if (token_.how() != LockToken::kReleasedBySuccessor) {
      memory_.fetch_add(operation_, target_, lock_.word(),
                        LockWord::depart(type_, of) + LockWord::depart(type_, token_.owed()) +
                            LockWord::depart(opposite(type_), token_.predecessors()),
                        access);
      if (holds_alone() && token_.how() != LockToken::kPlain)
        passing_.emplace(memory_, lock_, target_, LockWord::after(token_.ticket()));
    } else if (of == LockOf::kAll) {
      // The successor that takes this reader off the lock word does not know that it is a lock_all.
      memory_.fetch_add(operation_, target_, lock_.word(), -LockWord::mark(of), access);
      step_ = Step::kUnmarked;
    } else {
      count(0, access);
    }
  }
  // Continues after the departure: `before` is the previous value of the lock word.
  ReleaseLock(M& memory, int target, LockType type, LockToken token, std::uint64_t before)
      : memory_(memory), token_(token), target_(target), type_(type) {
    departed(before);
  }

  bool advance() {
    while (!failed_ && step_ != Step::kDone && operation_.done()) {
      switch (step_) {
        case Step::kDeparted: departed(operation_.value()); break;
        case Step::kUnmarked: count(0); break;
        case Step::kDrained: {
          const std::uint64_t now = operation_.value() + added_;
          const std::uint64_t waiter = DrainWord::waiter(now);
          step_ = Step::kDone;
          if (waiter == 0 || DrainWord::departed(now) != 0) break;
          memory_.write_unawaited(WaiterId::rank(waiter), WaiterId::wake_word(waiter),
                                  WakeValue::make(WakeValue::kDrained, DrainWord::end(now)));
          break;
        }
        case Step::kDone: break;
      }
    }
    return failed_ || (step_ == Step::kDone && operation_.done() && (!passing_ || passing_->advance()));
  }
  typename M::Operation* failed_operation() {
    auto* const failed = operation_.failed() ? &operation_ : passing_ ? passing_->failed_operation() : nullptr;
    failed_ = failed_ || failed != nullptr;
    return failed;
  }

 private:
  enum class Step : std::uint8_t { kDeparted, kUnmarked, kDrained, kDone };

  // Whether it is a writer that holds alone, and hands the lock off itself.
  bool holds_alone() const { return !lock_.compatible(type_); }
  void departed(std::uint64_t before) {
    const std::uint64_t own = LockWord::present(before, type_) - 1 - token_.owed();
    const std::uint64_t others = LockWord::present(before, opposite(type_)) - token_.predecessors();
    if (const std::uint64_t successor = token_.successor(); successor != 0) {
      const HandOff hand_off = lock_.compatible(opposite(type_)) ? HandOff::behind(own, others) : HandOff{};
      memory_.write_unawaited(WaiterId::rank(successor), WaiterId::wake_word(successor),
                              WakeValue::make(WakeValue::kHandOff, hand_off.bits()));
      step_ = Step::kDone;
    } else if (holds_alone()) {
      step_ = Step::kDone;
      const bool waited_for = own + others > 0;
      if (waited_for && !passing_) passing_.emplace(memory_, lock_, target_, LockWord::after(token_.ticket()));
      if (!passing_) return;
      // Admits the readers before the first waiting writer, which is the next owner. If it has the next ticket, there
      // are none, and it is woken.
      passing_->begin(LockType::kShared, own > 0 ? HandOff::next_after(0) : HandOff::members(others), false);
    } else if (others == 0) {
      step_ = Step::kDone;
    } else {
      count(own == 0 && lock_.global ? others : 0);
    }
  }
  void count(std::uint64_t end, DataAccess access = DataAccess::kGoesOn) {
    added_ = DrainWord::depart(end);
    memory_.fetch_add(operation_, target_, lock_.drain_word(type_), added_, access);
    step_ = Step::kDrained;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassHandOff<M>> passing_;
  LockToken token_;
  std::uint64_t added_ = 0;  // what it has added to the drain word
  int target_;
  LockType type_;
  LockPlace lock_{};
  bool failed_ = false;  // some operation
  Step step_ = Step::kDeparted;
};

// Releases up to kMost locks at once. The failure of one release does not stop the others.
template <RemoteMemory M, std::size_t kMost>
class ReleaseLocks {
 public:
  // `arguments`: of ReleaseLock.
  void add(auto&&... arguments) { releases_[count_++].emplace(std::forward<decltype(arguments)>(arguments)...); }
  bool advance() {
    bool over = true;
    for (auto& release : std::span(releases_).first(count_)) over = release->advance() && over;
    return over;
  }
  typename M::Operation* failed_operation() {
    for (auto& release : std::span(releases_).first(count_)) {
      if (typename M::Operation* const failed = release->failed_operation()) return failed;
    }
    return nullptr;
  }

 private:
  std::array<std::optional<ReleaseLock<M>>, kMost> releases_{};
  std::size_t count_ = 0;
};

}  // namespace farside::epochs
