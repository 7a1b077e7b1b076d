// SPDX-License-Identifier: BSD-3-Clause
// A lock over remote memory, by 64-bit fetch-add and compare-and-swap, of two groups that exclude each other. Nobody
// is overtaken, nobody polls remote memory, and whoever waits sleeps on a word of its own. There are two of them:
//
//   TargetLock  one per rank: the passive-target lock. Readers share it with each other, a writer with nobody.
//   Gate        one per window, at its home rank: lock_alls ("readers") share it with each other, and so do exclusive
//               locks of whatever targets ("writers"). lock_all passes the gate and takes no rank's lock; an exclusive
//               lock passes the gate and then takes the lock of its target; a shared one takes that lock only.
//
// Everyone draws a ticket and says who comes, in one fetch-add on the word, and holds at once if nobody is in the way.
// From the moment members of both groups are present, all who come wait, in ticket order:
//
//   - the first of its group, where the other one holds together (all of it, as nobody of it can be waiting), is next
//     in turn. It announces itself and the number of the others in their drain word. Who leaves while somebody of the
//     other group is present counts there, and the last one wakes it;
//   - everyone else puts itself into its ticket's slot of the ring and sleeps.
//
// The turn is passed on from ticket to ticket (pass_turn.hpp), in one of two ways (Turn):
//
//   - if nobody of the group that leaves waits, exactly those of the other group present wait, with tickets in a row:
//     all of them go, and nobody else;
//   - else the members up to the first of the other group go, and that one is next in turn, behind them.
//
// Who passes it on: a writer of a target when it unlocks, as it was alone; otherwise whoever was next in turn, when it is
// woken. If it came first of its group, the last one to leave has told it in the drain word which way (DrainWord: end).
//
// Those who were let in in front of a next in turn know that it is there. They do not leave in the lock word, to find
// somebody there and count in the drain word as well, but in the drain word only, and the next in turn sees them off, that
// is, takes them off the lock word (Hold): a writer of a target when it leaves itself; at the gate when it is woken, and what
// the lock word holds then tells which way the turn goes on. The first kMostSeenOff of a group are seen off, no more.
//
// Who is alone in its group, and finds the next in turn while it passes the turn on, announces it nowhere, but keeps
// its id, and wakes it when it leaves.
//
// The ring is shorter than the number of ranks: who is further than its length from the front comes to it later, at a
// time that it estimates (FarWait), mostly from one look at the word. Who comes too early finds its slot taken, and
// looks; or takes it before an earlier ticket, and then must give way to that.
//
// Cost in remote operations: uncontended 1 and 1. Contended, lock and unlock together, with what others do to let it in: 6
// to 9; plus the looks of those far from the front. In one call at most PassTurn::kMost waiters are
// let in. Memory: 8 * (2 + 256 + 8) bytes per rank, the gate 8 * (3 + 256).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "epochs/control_block.hpp"
#include "epochs/epoch_state.hpp"
#include "epochs/far_wait.hpp"
#include "epochs/lock_words.hpp"
#include "epochs/pass_turn.hpp"
#include "transport/remote_memory.hpp"

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
  // The ticket was drawn: `before` was in the lock word.
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
        case Step::kDraw:
          memory_.fetch_add(operation_, target_, Lock::kWord, LockWord::come(type_, of_));
          step_ = Step::kDrawn;
          break;
        case Step::kDrawn: take_ticket(operation_.value()); break;
        case Step::kFar:
          memory_.read(operation_, target_, Lock::kWord);
          step_ = Step::kLooked;
          break;
        case Step::kLooked: look(operation_.value()); break;
        case Step::kNear:
          memory_.compare_and_swap(operation_, target_, Lock::ring_word(ticket_), RingSlot::kEmpty, entry());
          step_ = Step::kOffered;
          break;
        case Step::kOffered: take_slot(operation_.value()); break;
        case Step::kTakenOver:
          if (operation_.value() == later_) {
            in_ring_ = true;
            memory_.write(operation_, WaiterId::rank(RingSlot::what(later_)), WaiterId::wake_word(RingSlot::what(later_)),
                          WakeUp::make(WakeUp::kAgain));
            step_ = Step::kAsleep;
          } else {
            step_ = Step::kNear;
          }
          break;
        case Step::kAnnounced: {
          const std::uint64_t drain = operation_.value();
          if (DrainWord::left(drain) == static_cast<std::int64_t>(announces_)) {
            drained(first_ ? DrainWord::end(drain) : Turn::seen_off(announces_));
            step_ = Step::kTurn;
          } else {
            step_ = Step::kAsleep;
          }
          announces_ = 0;
          break;
        }
        case Step::kAsleep: {
          const std::uint64_t wake_up = memory_.own(WaiterId::wake_word(id_));
          if (wake_up == 0) return false;
          memory_.own_fetch_add(WaiterId::wake_word(id_), -wake_up);
          woken(wake_up);
          break;
        }
        case Step::kTurn:
          if (announces_ > 0) {
            announce(announces_);
            break;
          }
          if (sees_off_ > 0 && Lock::together(type_)) {
            memory_.fetch_add(operation_, target_, Lock::kWord, LockWord::leave(opposite(type_), sees_off_));
            step_ = Step::kSawOff;
            break;
          }
          step_ = Step::kHeld;
          if (drained_) {
            memory_.fetch_add(operation_, target_, Lock::drain_word(opposite(type_)), DrainWord::withdraw(id_, end_));
          }
          if (turn_.is_nothing()) break;
          pass_.emplace(memory_, target_, LockWord::after(ticket_), type_, turn_, true);
          return advance();
        case Step::kSawOff: {
          const std::uint64_t before = operation_.value();
          const std::uint64_t others = LockWord::present(before, opposite(type_)) - sees_off_;
          sees_off_ = 0;
          take_turn(Turn::behind(others, LockWord::present(before, type_)));
          step_ = Step::kTurn;
          break;
        }
        case Step::kHeld: return true;
      }
    }
    return false;
  }

  // Whether it is known if somebody is in the way.
  bool drawn() const { return step_ > Step::kDrawn; }
  // Whether it is held, though what is to be done then may have failed: it has to be given back.
  bool held() const { return step_ == Step::kHeld; }
  // Whether the target was exposed by a post when this lock was asked for: against the rules.
  bool saw_exposure() const { return saw_exposure_; }
  // What ReleaseLock needs, once held.
  Hold hold() const {
    if (pass_ && pass_->successor() != 0) return Hold(ticket_, Hold::kSuccessor, pass_->successor());
    if (seen_off_) return Hold(ticket_, Hold::kSeenOff);
    return sees_off_ > 0 ? Hold(ticket_, Hold::kSeesOff, sees_off_) : Hold(ticket_);
  }
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : pass_ ? pass_->failed_operation() : nullptr;
  }

 private:
  enum class Step : std::uint8_t {
    kDraw, kDrawn, kFar, kLooked, kNear, kOffered, kTakenOver, kAnnounced, kAsleep, kTurn, kSawOff, kHeld
  };

  void take_ticket(std::uint64_t before) {
    ticket_ = LockWord::ticket(before);
    saw_exposure_ = LockWord::exposed(before);
    const std::uint64_t own = LockWord::present(before, type_);
    const std::uint64_t others = LockWord::present(before, opposite(type_));
    if (Lock::holds_at_once(before, type_)) {
      step_ = Step::kHeld;
    } else if (own == 0 && Lock::together(opposite(type_))) {
      first_ = true;
      announce(others);
    } else if (own + others < ControlBlock::kRingSlots) {
      step_ = Step::kNear;
    } else {
      wait(far_wait_.begin(LockWord::writers(before), LockWord::readers(before), Lock::kWritersTogether));
    }
  }
  // Waits for so many of the other group, that hold now, to leave.
  void announce(std::uint64_t others) {
    announces_ = others;
    memory_.fetch_add(operation_, target_, Lock::drain_word(opposite(type_)),
                      DrainWord::announce(id_, others, first_ ? 0 : Turn::seen_off(others)));
    step_ = Step::kAnnounced;
  }
  void wait(FarWait::Pause pause) {
    memory_.pause(operation_, pause.hand_overs);
    hopes_ = !pause.look;
    step_ = pause.look ? Step::kFar : Step::kNear;
  }
  void learn(const FarWait::Seen& seen) {
    if (seen.paused > 0) memory_.paused(seen.paused, seen.hand_overs);
  }
  void look(std::uint64_t word) {
    const std::uint64_t front = LockWord::ticket(word) - LockWord::writers(word) - LockWord::readers(word);
    const std::uint64_t distance = LockWord::distance(ticket_, front);
    // An estimate: readers leave in any order, so the front may seem nearer than it is (then the slot is taken back
    // where it stands in the way of an earlier ticket, PassTurn), or even be past this ticket (then its turn has come).
    if (distance < ControlBlock::kRingSlots || distance >= LockWord::kTickets / 2) {
      hopes_ = false;
      step_ = Step::kNear;
      return;
    }
    wait(far_wait_.again(distance));
    learn(far_wait_.seen());
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
        step_ = Step::kFar;
      } else {
        // It has gone ahead and is about to empty it.
        memory_.pause(operation_, 1);
        step_ = Step::kNear;
      }
      return;
    }
    // The turn came first.
    learn(far_wait_.late());
    const Turn turn = Turn::of(RingSlot::what(slot));
    if (!turn.to_next) {
      take_turn(turn);
    } else if (RingSlot::type(slot) == type_) {
      take_turn(Turn::next_after(turn.count + 1));
    } else {
      announces_ = turn.count;
    }
    empty_slot(slot);
  }
  void woken(std::uint64_t wake_up) {
    const std::uint64_t what = WakeUp::what(wake_up);
    switch (WakeUp::how(wake_up)) {
      case WakeUp::kAgain:
        in_ring_ = false;
        far_wait_.slept();
        step_ = Step::kFar;
        return;
      case WakeUp::kDrained: drained(what); break;
      case WakeUp::kHold: take_turn(Turn::of(what)); break;
    }
    if (in_ring_) return empty_slot(entry());
    step_ = Step::kTurn;
  }
  // Who was waited for has left. `end`: of the drain word.
  void drained(std::uint64_t end) {
    drained_ = true;
    end_ = end;
    if (!first_) {
      sees_off_ = end;
    } else if (Lock::together(type_)) {
      take_turn(end > 0 ? Turn::members(end - 1) : Turn::next_after(1));
    }
  }
  void take_turn(Turn turn) {
    seen_off_ = turn.to_next && turn.count <= kMostSeenOff;
    turn_ = turn.count > 0 ? turn : Turn{};
  }
  // In the ring, while it waits.
  std::uint64_t entry() const { return RingSlot::make(RingSlot::kWaiting, ticket_, id_, type_); }
  // Not by a write: others may be trying the slot (remote_memory.hpp).
  void empty_slot(std::uint64_t holds) {
    memory_.fetch_add(operation_, target_, Lock::ring_word(ticket_), RingSlot::kEmpty - holds);
    step_ = Step::kTurn;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassTurn<M, Lock>> pass_;
  std::uint64_t id_;
  std::uint64_t ticket_ = 0;
  FarWait far_wait_;
  std::uint64_t later_ = 0;      // the entry of a later ticket, which is in the way
  std::uint64_t announces_ = 0;  // how many of the other group must leave first
  std::uint64_t end_ = 0;        // in the drain word
  std::uint64_t sees_off_ = 0;   // how many of the other group are to be taken off the lock word
  Turn turn_;                    // to pass on before holding
  int target_;
  LockType type_;
  LockOf of_;
  bool in_ring_ = false;
  bool hopes_ = false;           // to be near enough, without having looked
  bool first_ = false;           // of its group when it came
  bool drained_ = false;         // stands in the drain word
  bool seen_off_ = false;        // somebody of the other group takes it off the lock word
  bool saw_exposure_ = false;
  Step step_ = Step::kDraw;
};

// Gives the lock back. What was done under it must have completed at the target before. `hold` is AcquireLock's.
// As above, where the hold is plain: add LockWord::leave(type), and if Lock::nobody_waits() said no, an object that was given
// what was there goes on.
template <RemoteMemory M, class Lock = TargetLock>
class ReleaseLock {
 public:
  // `of`: as it was acquired.
  ReleaseLock(M& memory, int target, LockType type, Hold hold, LockOf of = LockOf::kTarget)
      : memory_(memory), hold_(hold), target_(target), type_(type) {
    if (hold_.how() != Hold::kSeenOff) {
      memory_.fetch_add(operation_, target_, Lock::kWord,
                        LockWord::leave(type_, of) + LockWord::leave(opposite(type_), hold_.sees_off()));
    } else if (of == LockOf::kAll) {
      // The call that takes it off the lock word does not know which call has put it there.
      memory_.fetch_add(operation_, target_, Lock::kWord, -LockWord::mark(of));
      step_ = Step::kUnmarked;
    } else {
      count(0);
    }
  }
  // It has left: `before` was in the lock word.
  ReleaseLock(M& memory, int target, LockType type, Hold hold, std::uint64_t before)
      : memory_(memory), hold_(hold), target_(target), type_(type) {
    left(before);
  }

  bool advance() {
    while (!pass_ && operation_.done()) {
      switch (step_) {
        case Step::kLeft: left(operation_.value()); break;
        case Step::kUnmarked: count(0); break;
        case Step::kDrained: {
          const std::uint64_t now = operation_.value() + added_;
          const std::uint64_t waiter = DrainWord::waiter(now);
          step_ = Step::kDone;
          if (waiter == 0 || DrainWord::left(now) != 0) break;
          memory_.write(operation_, WaiterId::rank(waiter), WaiterId::wake_word(waiter),
                        WakeUp::make(WakeUp::kDrained, DrainWord::end(now)));
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
  enum class Step : std::uint8_t { kLeft, kUnmarked, kDrained, kDone };

  void left(std::uint64_t before) {
    const std::uint64_t own = LockWord::present(before, type_) - 1;
    const std::uint64_t others = LockWord::present(before, opposite(type_)) - hold_.sees_off();
    if (const std::uint64_t successor = hold_.successor(); successor != 0) {
      const Turn turn = Lock::together(opposite(type_)) ? Turn::behind(own, others) : Turn{};
      memory_.write(operation_, WaiterId::rank(successor), WaiterId::wake_word(successor),
                    WakeUp::make(WakeUp::kHold, turn.bits()));
      step_ = Step::kDone;
    } else if (others == 0 && (Lock::together(type_) || own == 0)) {
      step_ = Step::kDone;
    } else if (Lock::together(type_)) {
      count(own == 0 && Lock::kWritersTogether ? others : 0);
    } else {
      pass_.emplace(memory_, target_, LockWord::after(hold_.ticket()), LockType::kShared,
                    own == 0 ? Turn::members(others) : Turn::next_after(0), false);
    }
  }
  void count(std::uint64_t end) {
    added_ = DrainWord::leave(end);
    memory_.fetch_add(operation_, target_, Lock::drain_word(type_), added_);
    step_ = Step::kDrained;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassTurn<M, Lock>> pass_;
  Hold hold_;
  std::uint64_t added_ = 0;  // to the drain word
  int target_;
  LockType type_;
  Step step_ = Step::kLeft;
};

// Takes the gate and the exclusive lock of a target, by asking for both at once: one round trip where nobody is in the
// way. A lock that is got, while it turns out that the gate is not passed at once, is given back, and asked for again behind
// the gate: in front of it it would hold up those who are past the gate, and whom a lock_all that waits there waits for.
template <RemoteMemory M>
class AcquireLockAndGate {
 public:
  // `gate_node`, `lock_node`: two wake words, as this rank may wait at both.
  AcquireLockAndGate(M& memory, int self, int target, int home, std::uint32_t gate_node, std::uint32_t lock_node)
      : memory_(memory),
        self_(self),
        target_(target),
        lock_node_(lock_node),
        gate_(memory, self, home, LockType::kExclusive, gate_node),
        lock_(std::in_place, memory, self, target, LockType::kExclusive, lock_node) {}

  bool advance() {
    const bool passed = gate_.advance();
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
      if (!gate_.drawn()) return false;
      release_.emplace(memory_, target_, LockType::kExclusive, lock_->hold());
    }
  }

  bool saw_exposure() const { return lock_->saw_exposure(); }
  // Of the lock, and of the gate.
  Hold hold() const { return lock_->hold(); }
  Hold gate_hold() const { return gate_.hold(); }
  // The one that failed; it is known from then on which part it belongs to.
  typename M::Operation* failed_operation() {
    if (typename M::Operation* failed = gate_.failed_operation()) {
      gate_failed_ = true;
      return failed;
    }
    typename M::Operation* failed = release_ ? release_->failed_operation() : nullptr;
    if (failed == nullptr && lock_) failed = lock_->failed_operation();
    if (failed != nullptr) lock_failed_ = true;
    return failed;
  }

  // After that, in place of advance(), until it says true: nobody but this rank can take it out of a queue, so the part that
  // has not failed goes on until it is held (or fails, too). A lock of the target is given back then; the gate is the caller's
  // to give back, if gate_held().
  bool advance_after_failure() {
    if (typename M::Operation* failed = failed_operation()) (void)failed->take_error();
    const bool gate_over = gate_failed_ || gate_.advance();
    if (lock_ && !release_ && (lock_failed_ ? lock_->held() : lock_->advance())) {
      release_.emplace(memory_, target_, LockType::kExclusive, lock_->hold());
      lock_failed_ = false;
    }
    const bool lock_over = lock_failed_ || !lock_ || (release_ && release_->advance());
    return gate_over && lock_over;
  }
  bool gate_held() const { return gate_.held(); }

 private:
  M& memory_;
  int self_;
  int target_;
  std::uint32_t lock_node_;
  AcquireLock<M, Gate> gate_;
  std::optional<AcquireLock<M, TargetLock>> lock_;
  std::optional<ReleaseLock<M, TargetLock>> release_;  // of a lock that was got in front of the gate, or in vain
  bool gate_failed_ = false;
  bool lock_failed_ = false;
};

// Gives back an exclusive lock and, where it was the last of this process, the gate, both at once: what was done under
// the lock is complete, so it makes no difference which goes first.
template <RemoteMemory M>
class ReleaseLockAndGate {
 public:
  ReleaseLockAndGate(M& memory, int target, Hold hold, int home, Hold gate_hold)
      : lock_(memory, target, LockType::kExclusive, hold), gate_(memory, home, LockType::kExclusive, gate_hold) {}

  bool advance() {
    const bool unlocked = lock_.advance();
    return gate_.advance() && unlocked;
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = lock_.failed_operation();
    return failed != nullptr ? failed : gate_.failed_operation();
  }

 private:
  ReleaseLock<M, TargetLock> lock_;
  ReleaseLock<M, Gate> gate_;
};

}  // namespace farside::epochs
