// SPDX-License-Identifier: BSD-3-Clause
// A lock over remote memory, by 64-bit fetch-add and compare-and-swap, of two groups that exclude each other. Nobody
// is overtaken, nobody polls remote memory, and whoever waits sleeps on a word of its own. There are two of them:
//
//   TargetLock  one per rank: the passive-target lock. Readers share it with each other, a writer with nobody.
//   Global lock        one per window, at its home rank: lock_alls ("readers") share it with each other, and so do
//                      exclusive
//               locks of whatever targets ("writers"). lock_all acquires the global lock and takes no rank's lock; an
//               exclusive lock acquires the global lock and then takes the lock of its target; a shared one takes that
//               lock only.
//
// Everyone takes a ticket and says who comes, in one fetch-add on the word, and holds at once if nobody is in the way.
// From the moment members of both groups are present, all who come wait, in ticket order:
//
//   - the first of its group, where the other one holds together (all of it, as nobody of it can be waiting), is next
//     in turn. It announces itself and the number of the others in their drain word. Who leaves while somebody of the
//     other group is present counts there, and the last one wakes it;
//   - everyone else puts itself into its ticket's slot of the ring and sleeps.
//
// The hand-off is passed on from ticket to ticket (hand_off.hpp), in one of two ways (HandOff):
//
//   - if nobody of the group that leaves waits, exactly those of the other group present wait, with tickets in a row:
//     all of them go, and nobody else;
//   - else the members up to the first of the other group go, and that one is the next owner, behind them.
//
// Who passes it on: a writer of a target when it unlocks, as it was alone; otherwise whoever was the next owner, when
// it is woken. If it came first of its group, the last one to leave has told it in the drain word which way (DrainWord:
// end).
//
// Those who were let in in front of a the next owner know that it is there. They do not leave in the lock word, to find
// somebody there and count in the drain word as well, but in the drain word only, and the next owner releases them,
// that is, takes them off the lock word (LockToken): a writer of a target when it leaves itself; at the global lock
// when it is woken, and what the lock word holds then tells which way the hand-off goes on. The first
// kMostReleasedBySuccessor of a group are released by their successor, no more.
//
// Who is alone in its group, and finds the next owner while it hands the lock off, announces it nowhere, but keeps
// its id, and wakes it when it leaves.
//
// The ring is shorter than the number of ranks: who is further than its length from the front comes to it later, at a
// time that it estimates (ProbePacing), mostly from one look at the word. Who comes too early finds its slot taken, and
// looks; or takes it before an earlier ticket, and then must give way to that.
//
// Cost in remote operations: uncontended 1 and 1. Contended, lock and unlock together, with what others do to let it
// in: 6 to 9; plus the looks of those far from the front. In one call at most HandOffLock::kMost waiters are
// let in. Memory: 8 * (2 + 256 + 8) bytes per rank, the global lock 8 * (3 + 256).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/hand_off.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "epochs/protocols/probe_pacing.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// Takes the lock at `target` for rank `self`, which may wait on its wake word `node` meanwhile. Call advance() until
// it says true, between other things that must go on; it never waits. Must stay where it is until then.
//
// Where a word is at hand (ControlMemory::fetch_add_now) an uncontended lock is not worth an object: add
// LockWord::come(type), and if Lock::holds_at_once() said no to what was there, an object that was given it goes on.
template <RemoteMemory M, class Lock = TargetLock>
class AcquireLock {
 public:
  // `of`: for a lock_all that takes the lock of another rank.
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t node = 0, LockOf of = LockOf::kTarget)
      : memory_(memory), id_(WaiterId::make(self, node)), target_(target), type_(type), of_(of) {}
  // The ticket was taken: `before` was in the lock word.
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t node, std::uint64_t before)
      : AcquireLock(memory, self, target, type, node) {
    take_ticket(before);
  }

  bool advance() {
    if (pass_) {
      const bool passed = pass_->advance();
      return operation_.done() && passed;
    }
    while (operation_.done()) {
      switch (step_) {
        case Step::kTakeTicket:
          memory_.fetch_add(operation_, target_, Lock::kWord, LockWord::arrive(type_, of_));
          step_ = Step::kTicketTaken;
          break;
        case Step::kTicketTaken: take_ticket(operation_.value()); break;
        case Step::kProbe:
          memory_.read(operation_, target_, Lock::kWord);
          step_ = Step::kProbed;
          break;
        case Step::kProbed: probe(operation_.value()); break;
        case Step::kOffer:
          memory_.compare_and_swap(operation_, target_, Lock::ring_word(ticket_), RingSlot::kEmpty, entry());
          step_ = Step::kOffered;
          break;
        case Step::kOffered: take_slot(operation_.value()); break;
        case Step::kTakenOver:
          if (operation_.value() == later_) {
            in_ring_ = true;
            memory_.write(operation_, WaiterId::rank(RingSlot::what(later_)),
                          WaiterId::wake_word(RingSlot::what(later_)), WakeValue::make(WakeValue::kAgain));
            step_ = Step::kAsleep;
          } else {
            step_ = Step::kOffer;
          }
          break;
        case Step::kAnnounced: {
          const std::uint64_t drain = operation_.value();
          if (DrainWord::departed(drain) == static_cast<std::int64_t>(announces_)) {
            drained(first_ ? DrainWord::end(drain) : HandOff::released_by_successor(announces_));
            step_ = Step::kHandOff;
          } else {
            step_ = Step::kAsleep;
          }
          announces_ = 0;
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
          if (announces_ > 0) {
            announce(announces_);
            break;
          }
          if (predecessors_ > 0 && Lock::compatible(type_)) {
            memory_.fetch_add(operation_, target_, Lock::kWord, LockWord::depart(opposite(type_), predecessors_));
            step_ = Step::kReleasedPredecessors;
            break;
          }
          step_ = Step::kHeld;
          if (drained_) {
            memory_.fetch_add(operation_, target_, Lock::drain_word(opposite(type_)), DrainWord::withdraw(id_, end_));
          }
          if (hand_off_.is_nothing()) break;
          pass_.emplace(memory_, target_, LockWord::after(ticket_), type_, hand_off_, true);
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

  // Whether it is known if somebody is in the way.
  bool has_ticket() const { return step_ > Step::kTicketTaken; }
  // Whether it is held, though what is to be done then may have failed: it has to be given back.
  bool held() const { return step_ == Step::kHeld; }
  // Whether the target was exposed by a post when this lock was asked for: against the rules.
  bool saw_exposure() const { return saw_exposure_; }
  // What ReleaseLock needs, once held.
  LockToken token() const {
    if (pass_ && pass_->successor() != 0) return LockToken(ticket_, LockToken::kSuccessor, pass_->successor());
    if (released_by_successor_) return LockToken(ticket_, LockToken::kReleasedBySuccessor);
    return predecessors_ > 0 ? LockToken(ticket_, LockToken::kReleasesPredecessors, predecessors_) : LockToken(ticket_);
  }
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : pass_ ? pass_->failed_operation() : nullptr;
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

  void take_ticket(std::uint64_t before) {
    ticket_ = LockWord::ticket(before);
    saw_exposure_ = LockWord::exposed(before);
    const std::uint64_t own = LockWord::present(before, type_);
    const std::uint64_t others = LockWord::present(before, opposite(type_));
    if (Lock::holds_at_once(before, type_)) {
      step_ = Step::kHeld;
    } else if (own == 0 && Lock::compatible(opposite(type_))) {
      first_ = true;
      announce(others);
    } else if (own + others < ControlBlock::kRingSlots) {
      step_ = Step::kOffer;
    } else {
      wait(pacing_.begin(LockWord::writers(before), LockWord::readers(before), Lock::kWritersShare));
    }
  }
  // Waits for so many of the other group, that hold now, to leave.
  void announce(std::uint64_t others) {
    announces_ = others;
    memory_.fetch_add(operation_, target_, Lock::drain_word(opposite(type_)),
                      DrainWord::announce(id_, others, first_ ? 0 : HandOff::released_by_successor(others)));
    step_ = Step::kAnnounced;
  }
  void wait(ProbePacing::Pause pause) {
    memory_.pause(operation_, pause.hand_offs);
    hopes_ = !pause.probe;
    step_ = pause.probe ? Step::kProbe : Step::kOffer;
  }
  void learn(const ProbePacing::Seen& seen) {
    if (seen.paused > 0) memory_.paused(seen.paused, seen.hand_offs);
  }
  void probe(std::uint64_t word) {
    const std::uint64_t front = LockWord::ticket(word) - LockWord::writers(word) - LockWord::readers(word);
    const std::uint64_t distance = LockWord::distance(ticket_, front);
    // An estimate: readers leave in any order, so the front may seem nearer than it is (then the slot is taken back
    // where it stands in the way of an earlier ticket, HandOffLock), or even be past this ticket (then its turn has
    // come).
    if (distance < ControlBlock::kRingSlots || distance >= LockWord::kTickets / 2) {
      hopes_ = false;
      step_ = Step::kOffer;
      return;
    }
    wait(pacing_.again(distance));
    learn(pacing_.seen());
  }
  void take_slot(std::uint64_t slot) {
    if (slot == RingSlot::kEmpty) {
      in_ring_ = true;
      step_ = Step::kAsleep;
      return;
    }
    if (!RingSlot::is_of(slot, ticket_)) {
      if (RingSlot::is_later(slot, ticket_)) {
        // It took itself for nearer to the front than it is, and must give way.
        later_ = slot;
        memory_.compare_and_swap(operation_, target_, Lock::ring_word(ticket_), later_, entry());
        step_ = Step::kTakenOver;
      } else if (hopes_) {
        // An earlier one's, which may wait for long.
        step_ = Step::kProbe;
      } else {
        // It has gone ahead and is about to empty it.
        memory_.pause(operation_, 1);
        step_ = Step::kOffer;
      }
      return;
    }
    // The hand-off came first.
    learn(pacing_.late());
    const HandOff hand_off = HandOff::of(RingSlot::what(slot));
    if (!hand_off.to_next) {
      take_hand_off(hand_off);
    } else if (RingSlot::type(slot) == type_) {
      take_hand_off(HandOff::next_after(hand_off.count + 1));
    } else {
      announces_ = hand_off.count;
    }
    empty_slot(slot);
  }
  void woken(std::uint64_t wake_value) {
    const std::uint64_t what = WakeValue::what(wake_value);
    switch (WakeValue::how(wake_value)) {
      case WakeValue::kAgain:
        in_ring_ = false;
        pacing_.slept();
        step_ = Step::kProbe;
        return;
      case WakeValue::kDrained: drained(what); break;
      case WakeValue::kHandOff: take_hand_off(HandOff::of(what)); break;
    }
    if (in_ring_) return empty_slot(entry());
    step_ = Step::kHandOff;
  }
  // Who was waited for has left. `end`: of the drain word.
  void drained(std::uint64_t end) {
    drained_ = true;
    end_ = end;
    if (!first_) {
      predecessors_ = end;
    } else if (Lock::compatible(type_)) {
      take_hand_off(end > 0 ? HandOff::members(end - 1) : HandOff::next_after(1));
    }
  }
  void take_hand_off(HandOff hand_off) {
    released_by_successor_ = hand_off.to_next && hand_off.count <= kMostReleasedBySuccessor;
    hand_off_ = hand_off.count > 0 ? hand_off : HandOff{};
  }
  // In the ring, while it waits.
  std::uint64_t entry() const { return RingSlot::make(RingSlot::kWaiting, ticket_, id_, type_); }
  // Not by a write: others may be trying the slot (remote_memory.hpp).
  void empty_slot(std::uint64_t holds) {
    memory_.fetch_add(operation_, target_, Lock::ring_word(ticket_), RingSlot::kEmpty - holds);
    step_ = Step::kHandOff;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<HandOffLock<M, Lock>> pass_;
  std::uint64_t id_;
  std::uint64_t ticket_ = 0;
  ProbePacing pacing_;
  std::uint64_t later_ = 0;      // the entry of a later ticket, which is in the way
  std::uint64_t announces_ = 0;  // how many of the other group must leave first
  std::uint64_t end_ = 0;        // in the drain word
  std::uint64_t predecessors_ = 0;  // how many of the other group are to be taken off the lock word
  HandOff hand_off_;                // to pass on before holding
  int target_;
  LockType type_;
  LockOf of_;
  bool in_ring_ = false;
  bool hopes_ = false;           // to be near enough, without having looked
  bool first_ = false;           // of its group when it came
  bool drained_ = false;         // stands in the drain word
  bool released_by_successor_ = false;  // somebody of the other group takes it off the lock word
  bool saw_exposure_ = false;
  Step step_ = Step::kTakeTicket;
};

// Gives the lock back. What was done under it must have completed at the target before. `hold` is AcquireLock's.
// As above, where the hold is plain: add LockWord::leave(type), and if Lock::nobody_waits() said no, an object that was
// given what was there goes on.
template <RemoteMemory M, class Lock = TargetLock>
class ReleaseLock {
 public:
  // `of`: as it was acquired.
  ReleaseLock(M& memory, int target, LockType type, LockToken token, LockOf of = LockOf::kTarget)
      : memory_(memory), token_(token), target_(target), type_(type) {
    if (token_.how() != LockToken::kReleasedBySuccessor) {
      memory_.fetch_add(operation_, target_, Lock::kWord,
                        LockWord::depart(type_, of) + LockWord::depart(opposite(type_), token_.predecessors()));
    } else if (of == LockOf::kAll) {
      // The call that takes it off the lock word does not know which call has put it there.
      memory_.fetch_add(operation_, target_, Lock::kWord, -LockWord::mark(of));
      step_ = Step::kUnmarked;
    } else {
      count(0);
    }
  }
  // It has left: `before` was in the lock word.
  ReleaseLock(M& memory, int target, LockType type, LockToken token, std::uint64_t before)
      : memory_(memory), token_(token), target_(target), type_(type) {
    departed(before);
  }

  bool advance() {
    while (!pass_ && operation_.done()) {
      switch (step_) {
        case Step::kDeparted: departed(operation_.value()); break;
        case Step::kUnmarked: count(0); break;
        case Step::kDrained: {
          const std::uint64_t now = operation_.value() + added_;
          const std::uint64_t waiter = DrainWord::waiter(now);
          step_ = Step::kDone;
          if (waiter == 0 || DrainWord::departed(now) != 0) break;
          memory_.write(operation_, WaiterId::rank(waiter), WaiterId::wake_word(waiter),
                        WakeValue::make(WakeValue::kDrained, DrainWord::end(now)));
          break;
        }
        case Step::kDone: return true;
      }
    }
    return pass_ && pass_->advance();
  }
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : pass_ ? pass_->failed_operation() : nullptr;
  }

 private:
  enum class Step : std::uint8_t { kDeparted, kUnmarked, kDrained, kDone };

  void departed(std::uint64_t before) {
    const std::uint64_t own = LockWord::present(before, type_) - 1;
    const std::uint64_t others = LockWord::present(before, opposite(type_)) - token_.predecessors();
    if (const std::uint64_t successor = token_.successor(); successor != 0) {
      const HandOff hand_off = Lock::compatible(opposite(type_)) ? HandOff::behind(own, others) : HandOff{};
      memory_.write(operation_, WaiterId::rank(successor), WaiterId::wake_word(successor),
                    WakeValue::make(WakeValue::kHandOff, hand_off.bits()));
      step_ = Step::kDone;
    } else if (others == 0 && (Lock::compatible(type_) || own == 0)) {
      step_ = Step::kDone;
    } else if (Lock::compatible(type_)) {
      count(own == 0 && Lock::kWritersShare ? others : 0);
    } else {
      pass_.emplace(memory_, target_, LockWord::after(token_.ticket()), LockType::kShared,
                    own == 0 ? HandOff::members(others) : HandOff::next_after(0), false);
    }
  }
  void count(std::uint64_t end) {
    added_ = DrainWord::depart(end);
    memory_.fetch_add(operation_, target_, Lock::drain_word(type_), added_);
    step_ = Step::kDrained;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<HandOffLock<M, Lock>> pass_;
  LockToken token_;
  std::uint64_t added_ = 0;  // to the drain word
  int target_;
  LockType type_;
  Step step_ = Step::kDeparted;
};

// Takes the global lock and the exclusive lock of a target, by asking for both at once: one round trip where nobody is
// in the way. A lock that is got, while it turns out that the global lock is not passed at once, is given back, and
// asked for again behind the global lock: in front of it it would hold up those who are past the global lock, and whom
// a lock_all that waits there waits for.
template <RemoteMemory M>
class AcquireWithGlobalLock {
 public:
  // `global_lock_node`, `lock_node`: two wake words, as this rank may wait at both.
  AcquireWithGlobalLock(M& memory, int self, int target, int home, std::uint32_t global_lock_node,
                        std::uint32_t lock_node)
      : memory_(memory),
        self_(self),
        target_(target),
        lock_node_(lock_node),
        global_lock_(memory, self, home, LockType::kExclusive, global_lock_node),
        lock_(std::in_place, memory, self, target, LockType::kExclusive, lock_node) {}

  bool advance() {
    const bool passed = global_lock_.advance();
    for (;;) {
      if (release_) {
        if (!release_->advance()) return false;
        release_.reset();
        lock_.reset();
      }
      if (!lock_) {
        if (!passed) return false;
        lock_.emplace(memory_, self_, target_, LockType::kExclusive, lock_node_);
      }
      if (!lock_->advance()) return false;
      if (passed) return true;
      if (!global_lock_.has_ticket()) return false;
      release_.emplace(memory_, target_, LockType::kExclusive, lock_->token());
    }
  }

  bool saw_exposure() const { return lock_->saw_exposure(); }
  // Of the lock, and of the global lock.
  LockToken token() const { return lock_->token(); }
  LockToken global_lock_token() const { return global_lock_.token(); }
  // The one that failed; it is known from then on which part it belongs to.
  typename M::Operation* failed_operation() {
    if (typename M::Operation* failed = global_lock_.failed_operation()) {
      global_lock_failed_ = true;
      return failed;
    }
    typename M::Operation* failed = release_ ? release_->failed_operation() : nullptr;
    if (failed == nullptr && lock_) failed = lock_->failed_operation();
    if (failed != nullptr) lock_failed_ = true;
    return failed;
  }

  // After that, in place of advance(), until it says true: nobody but this rank can take it out of a queue, so the part
  // that has not failed goes on until it is held (or fails, too). A lock of the target is given back then; the global
  // lock is the caller's to give back, if global_lock_held().
  bool advance_after_failure() {
    if (typename M::Operation* failed = failed_operation()) (void)failed->take_error();
    const bool global_lock_over = global_lock_failed_ || global_lock_.advance();
    if (lock_ && !release_ && (lock_failed_ ? lock_->held() : lock_->advance())) {
      release_.emplace(memory_, target_, LockType::kExclusive, lock_->token());
      lock_failed_ = false;
    }
    const bool lock_over = lock_failed_ || !lock_ || (release_ && release_->advance());
    return global_lock_over && lock_over;
  }
  bool global_lock_held() const { return global_lock_.held(); }

 private:
  M& memory_;
  int self_;
  int target_;
  std::uint32_t lock_node_;
  AcquireLock<M, GlobalLock> global_lock_;
  std::optional<AcquireLock<M, TargetLock>> lock_;
  std::optional<ReleaseLock<M, TargetLock>> release_;  // of a lock that was got in front of the global lock, or in vain
  bool global_lock_failed_ = false;
  bool lock_failed_ = false;
};

// Gives back an exclusive lock and, where it was the last of this process, the global lock, both at once: what was done
// under the lock is complete, so it makes no difference which goes first.
template <RemoteMemory M>
class ReleaseWithGlobalLock {
 public:
  ReleaseWithGlobalLock(M& memory, int target, LockToken token, int home, LockToken global_lock_token)
      : lock_(memory, target, LockType::kExclusive, token),
        global_lock_(memory, home, LockType::kExclusive, global_lock_token) {}

  // After a failure of the one release, until the other one is over.
  bool advance() {
    const bool unlocked = lock_failed_ || lock_.advance();
    return (global_lock_failed_ || global_lock_.advance()) && unlocked;
  }
  // The operation that has failed since the last call, or null.
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = lock_failed_ ? nullptr : lock_.failed_operation();
    if (failed != nullptr) {
      lock_failed_ = true;
      return failed;
    }
    failed = global_lock_failed_ ? nullptr : global_lock_.failed_operation();
    if (failed != nullptr) global_lock_failed_ = true;
    return failed;
  }

 private:
  ReleaseLock<M, TargetLock> lock_;
  ReleaseLock<M, GlobalLock> global_lock_;
  bool lock_failed_ = false, global_lock_failed_ = false;
};

}  // namespace farside::epochs
