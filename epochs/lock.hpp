// SPDX-License-Identifier: BSD-3-Clause
// The passive-target lock of one rank: a fair reader-writer lock over remote memory, by 64-bit fetch-add and
// compare-and-swap. Nobody is overtaken, nobody polls remote memory, and whoever waits sleeps on a word of its own.
//
// Everyone draws a ticket and says who comes, in one fetch-add on the lock word, and holds at once if nobody is in
// the way: readers if no writer is present, writers if nobody is. So from the moment a writer is there until it
// unlocks, all who come wait behind it, in ticket order, in the ring:
//
//   - a writer that finds readers only (all of them holding) is next in turn. It announces itself and their number in
//     the drain word; readers that unlock while a writer is present count there, and the last one wakes it;
//   - everyone else puts itself into its ticket's slot of the ring and sleeps.
//
// A writer that unlocks passes the turn on (PassTurn), beginning at the ticket after its own:
//
//   - no other writer was present: exactly the readers present wait; all of them go;
//   - else the readers up to the next writer go, and that writer is next in turn, behind them.
//
// Passing goes by one compare-and-swap on the slot: the sleeper is found there and woken; or its ticket is drawn but
// it has not come yet, then it finds the turn in the slot, and passes it on where needed.
//
// The ring is shorter than the number of ranks: who is further than its length from the front looks at the lock word
// rarely, at times paced by its distance, until it is near enough.
//
// Cost in remote operations: uncontended 1 and 1. Contended, lock and unlock together: 4 to 7 of its own, of which 3
// for passing the turn on; plus the looks of those far from the front. Memory: 8 * (2 + 64 + 8) bytes per rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "epochs/control_block.hpp"
#include "epochs/epoch_state.hpp"
#include "epochs/lock_words.hpp"
#include "transport/remote_memory.hpp"

namespace farside::epochs {

// Passes the turn on through the ring. Part of ReleaseLock, and of AcquireLock where the turn came before the waiter.
template <RemoteMemory M>
class PassTurn {
 public:
  enum class To : std::uint8_t {
    kReaders,     // `count` readers, and nobody after them
    kNextWriter,  // the readers up to the next writer, of which `count` went before, and that writer
  };
  PassTurn(M& memory, int target, std::uint64_t ticket, To to, std::uint64_t count)
      : memory_(memory), ticket_(ticket), count_(count), target_(target), to_(to) {}

  bool advance() {
    while (operation_.done()) {
      // One wake-up at a time, but beside the look into the next slot.
      if (step_ != Step::kOffer && !wake_.done()) return false;
      switch (step_) {
        case Step::kOffer:
          if (to_ == To::kReaders && count_ == 0) {
            step_ = Step::kDone;
            break;
          }
          memory_.compare_and_swap(operation_, target_, ControlBlock::ring_word(ticket_), expected_, offer());
          step_ = Step::kOffered;
          break;
        case Step::kOffered: take_answer(operation_.value()); break;
        case Step::kAnnounced:
          if (DrainWord::left(operation_.value()) == static_cast<std::int64_t>(count_)) wake(kHoldAndClear);
          step_ = Step::kDone;
          break;
        case Step::kDone: return true;
      }
    }
    return false;
  }
  // An operation that failed, or null. On memory that can fail, a failed operation is never done.
  typename M::Operation* failed_operation() {
    return operation_.failed() ? &operation_ : wake_.failed() ? &wake_ : nullptr;
  }

 private:
  enum class Step : std::uint8_t { kOffer, kOffered, kAnnounced, kDone };

  std::uint64_t offer() const {
    return to_ == To::kReaders ? RingSlot::make(RingSlot::kPassed, ticket_, 0)
                               : RingSlot::make(RingSlot::kTurn, ticket_, count_);
  }
  void take_answer(std::uint64_t slot) {
    step_ = Step::kOffer;
    if (slot == expected_) {
      if (expected_ != RingSlot::kEmpty) {
        waiter_ = RingSlot::who(expected_);
        wake(kAgain);
        expected_ = RingSlot::kEmpty;
      }
      // The holder of the ticket will find it.
      if (to_ == To::kNextWriter) {
        step_ = Step::kDone;
      } else {
        next(count_ - 1);
      }
    } else if (slot == RingSlot::kEmpty) {
      expected_ = RingSlot::kEmpty;
    } else if (later_waits(slot)) {
      expected_ = slot;
    } else if (!RingSlot::is_of(slot, ticket_)) {
      // Whoever had the slot before has gone ahead and is about to empty it.
      expected_ = RingSlot::kEmpty;
      memory_.pause(operation_, 1);
    } else if (!RingSlot::exclusive(slot)) {
      waiter_ = RingSlot::who(slot);
      wake(kHold);
      next(to_ == To::kReaders ? count_ - 1 : count_ + 1);
    } else {
      waiter_ = RingSlot::who(slot);
      if (count_ == 0) {
        wake(kHold);
        step_ = Step::kDone;
      } else {
        memory_.fetch_add(operation_, target_, ControlBlock::kDrain, DrainWord::announce(waiter_, count_));
        step_ = Step::kAnnounced;
      }
    }
  }
  // A later ticket took itself for nearer to the front than it is, and has the slot: it must give way.
  bool later_waits(std::uint64_t slot) const {
    const std::uint64_t behind = LockWord::distance(RingSlot::ticket(slot), ticket_);
    return RingSlot::state(slot) == RingSlot::kWaiting && behind != 0 && behind < LockWord::kTickets / 2;
  }
  void next(std::uint64_t count) {
    count_ = count;
    ticket_ = LockWord::after(ticket_);
  }
  void wake(WakeUp how) { memory_.write(wake_, WaiterId::rank(waiter_), WaiterId::wake_word(waiter_), how); }

  M& memory_;
  typename M::Operation operation_;
  typename M::Operation wake_;
  std::uint64_t ticket_;
  std::uint64_t count_;  // kReaders: still to go; kNextWriter: gone
  std::uint64_t waiter_ = 0;
  std::uint64_t expected_ = RingSlot::kEmpty;  // in the slot: empty, or a later ticket that must give way
  int target_;
  To to_;
  Step step_ = Step::kOffer;
};

// Takes the lock of `target` for rank `self`, which may wait on its wake word `node` meanwhile. Call advance() until
// it says true, between other things that must go on; it never waits. Must stay where it is until then.
//
// Where a word is at hand (ControlMemory::fetch_add_now) an uncontended lock is not worth an object: add
// LockWord::come(type), and if holds_at_once() said no to what was there, an object that was given it goes on.
template <RemoteMemory M>
class AcquireLock {
 public:
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t node = 0)
      : memory_(memory), id_(WaiterId::make(self, node)), target_(target), type_(type) {}
  // The ticket was drawn: `before` was in the lock word.
  AcquireLock(M& memory, int self, int target, LockType type, std::uint32_t node, std::uint64_t before)
      : AcquireLock(memory, self, target, type, node) {
    take_ticket(before);
  }

  bool advance() {
    if (pass_) return pass_->advance();
    while (operation_.done()) {
      switch (step_) {
        case Step::kDraw:
          memory_.fetch_add(operation_, target_, ControlBlock::kLock, LockWord::come(type_));
          step_ = Step::kDrawn;
          break;
        case Step::kDrawn: take_ticket(operation_.value()); break;
        case Step::kFar:
          memory_.read(operation_, target_, ControlBlock::kLock);
          step_ = Step::kLooked;
          break;
        case Step::kLooked: look(operation_.value()); break;
        case Step::kNear:
          memory_.compare_and_swap(operation_, target_, ControlBlock::ring_word(ticket_), RingSlot::kEmpty,
                                   RingSlot::make(RingSlot::kWaiting, ticket_, id_, exclusive()));
          step_ = Step::kOffered;
          break;
        case Step::kOffered: take_slot(operation_.value()); break;
        case Step::kAnnounced:
          if (DrainWord::left(operation_.value()) == static_cast<std::int64_t>(readers_before_)) {
            woken_by_ = kHoldAndClear;
            step_ = Step::kSlotEmptied;
          } else {
            step_ = Step::kAsleep;
          }
          break;
        case Step::kAsleep: {
          const std::uint64_t wake_up = memory_.own(WaiterId::wake_word(id_));
          if (wake_up == 0) return false;
          woken_by_ = wake_up;
          memory_.own_fetch_add(WaiterId::wake_word(id_), -wake_up);
          if (wake_up == kAgain) {
            in_ring_ = false;
            far(1);
          } else if (in_ring_) {
            empty_slot();
          } else {
            step_ = Step::kSlotEmptied;
          }
          break;
        }
        case Step::kSlotEmptied:
          if (announces_) {
            announces_ = false;
            announce(readers_before_);
            break;
          }
          if (passes_on_) {
            pass_.emplace(memory_, target_, LockWord::after(ticket_), PassTurn<M>::To::kNextWriter, readers_before_ + 1);
            return pass_->advance();
          }
          if (woken_by_ == kHoldAndClear) {
            memory_.fetch_add(operation_, target_, ControlBlock::kDrain, DrainWord::withdraw(id_));
          }
          step_ = Step::kHeld;
          break;
        case Step::kHeld: return true;
      }
    }
    return false;
  }

  // Whether the target was exposed by a post when this lock was asked for: against the rules.
  bool saw_exposure() const { return saw_exposure_; }
  // What ReleaseLock needs, once held.
  std::uint64_t ticket() const { return ticket_; }
  typename M::Operation* failed_operation() {
    return pass_ ? pass_->failed_operation() : operation_.failed() ? &operation_ : nullptr;
  }

 private:
  enum class Step : std::uint8_t {
    kDraw, kDrawn, kFar, kLooked, kNear, kOffered, kAnnounced, kAsleep, kSlotEmptied, kHeld
  };

  bool exclusive() const { return type_ == LockType::kExclusive; }

  void take_ticket(std::uint64_t before) {
    ticket_ = LockWord::ticket(before);
    saw_exposure_ = LockWord::exposed(before);
    const std::uint64_t writers = LockWord::writers(before);
    const std::uint64_t readers = LockWord::readers(before);
    if (LockWord::holds_at_once(before, type_)) {
      step_ = Step::kHeld;
    } else if (writers == 0) {
      announce(readers);
    } else if (writers + readers < ControlBlock::kRingSlots) {
      step_ = Step::kNear;
    } else {
      distance_ = writers + readers;
      far(distance_ - ControlBlock::kRingSlots / 2);
    }
  }
  // Waits for readers that hold now.
  void announce(std::uint64_t readers) {
    readers_before_ = readers;
    memory_.fetch_add(operation_, target_, ControlBlock::kDrain, DrainWord::announce(id_, readers));
    step_ = Step::kAnnounced;
  }
  void far(std::uint64_t hand_overs) {
    pause_ = std::max<std::uint64_t>(hand_overs, 1);
    memory_.pause(operation_, pause_);
    step_ = Step::kFar;
  }
  void look(std::uint64_t word) {
    const std::uint64_t front = LockWord::ticket(word) - LockWord::writers(word) - LockWord::readers(word);
    const std::uint64_t distance = LockWord::distance(ticket_, front);
    // An estimate: readers leave in any order, so the front may seem nearer than it is (then the slot is taken back
    // where it stands in the way of an earlier ticket, PassTurn), or even be past this ticket (then its turn has come).
    if (distance < ControlBlock::kRingSlots || distance >= LockWord::kTickets / 2) {
      step_ = Step::kNear;
      return;
    }
    // As long as the rest takes at the speed seen since the last look.
    const std::uint64_t gone = distance_ > distance ? distance_ - distance : 1;
    const std::uint64_t rest = distance - ControlBlock::kRingSlots / 2;
    distance_ = distance;
    far(std::min(pause_ * rest / gone, 8 * rest));
  }
  void take_slot(std::uint64_t slot) {
    if (slot == RingSlot::kEmpty) {
      in_ring_ = true;
      step_ = Step::kAsleep;
      return;
    }
    if (!RingSlot::is_of(slot, ticket_)) {
      // An earlier ticket's, which has gone ahead and is about to empty it.
      memory_.pause(operation_, 1);
      step_ = Step::kNear;
      return;
    }
    // The turn came first.
    if (RingSlot::state(slot) == RingSlot::kTurn) {
      readers_before_ = RingSlot::who(slot);
      passes_on_ = !exclusive();
      announces_ = exclusive() && readers_before_ > 0;
    }
    empty_slot();
  }
  void empty_slot() {
    memory_.write(operation_, target_, ControlBlock::ring_word(ticket_), RingSlot::kEmpty);
    step_ = Step::kSlotEmptied;
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassTurn<M>> pass_;
  std::uint64_t id_;
  std::uint64_t ticket_ = 0;
  std::uint64_t distance_ = 0;        // from the front, when last looked
  std::uint64_t pause_ = 0;           // the last one, in hand-overs
  std::uint64_t readers_before_ = 0;  // that hold and must go before this writer, or went before this reader
  std::uint64_t woken_by_ = 0;
  int target_;
  LockType type_;
  bool in_ring_ = false;
  bool passes_on_ = false;
  bool announces_ = false;
  bool saw_exposure_ = false;
  Step step_ = Step::kDraw;
};

// Gives the lock back. What was done under it must have completed at the target before. `ticket` is AcquireLock's.
// As above: add LockWord::leave(type), and if nobody_waits() said no, an object that was given what was there goes on.
template <RemoteMemory M>
class ReleaseLock {
 public:
  ReleaseLock(M& memory, int target, LockType type, std::uint64_t ticket)
      : memory_(memory), ticket_(ticket), target_(target), type_(type) {
    memory_.fetch_add(operation_, target_, ControlBlock::kLock, LockWord::leave(type_));
  }
  // It has left: `before` was in the lock word.
  ReleaseLock(M& memory, int target, LockType type, std::uint64_t ticket, std::uint64_t before)
      : memory_(memory), ticket_(ticket), target_(target), type_(type) {
    tell(before);
  }

  bool advance() {
    while (!pass_ && operation_.done()) {
      switch (step_) {
        case Step::kLeft: tell(operation_.value()); break;
        case Step::kDrained: {
          const std::uint64_t now = operation_.value() + DrainWord::kOne;
          const std::uint64_t writer = DrainWord::writer(now);
          if (writer == 0 || DrainWord::left(now) != 0) return true;
          memory_.write(operation_, WaiterId::rank(writer), WaiterId::wake_word(writer), kHoldAndClear);
          step_ = Step::kDone;
          break;
        }
        case Step::kDone: return true;
      }
    }
    return pass_ && pass_->advance();
  }
  typename M::Operation* failed_operation() {
    return pass_ ? pass_->failed_operation() : operation_.failed() ? &operation_ : nullptr;
  }

 private:
  enum class Step : std::uint8_t { kLeft, kDrained, kDone };

  // Those whose turn it is now.
  void tell(std::uint64_t before) {
    step_ = Step::kDone;
    if (LockWord::nobody_waits(before, type_)) return;
    if (type_ == LockType::kShared) {
      memory_.fetch_add(operation_, target_, ControlBlock::kDrain, DrainWord::kOne);
      step_ = Step::kDrained;
      return;
    }
    using To = typename PassTurn<M>::To;
    const bool readers_only = LockWord::writers(before) == 1;
    pass_.emplace(memory_, target_, LockWord::after(ticket_), readers_only ? To::kReaders : To::kNextWriter,
                  readers_only ? LockWord::readers(before) : 0);
  }

  M& memory_;
  typename M::Operation operation_;
  std::optional<PassTurn<M>> pass_;
  std::uint64_t ticket_;
  int target_;
  LockType type_;
  Step step_ = Step::kLeft;
};

}  // namespace farside::epochs
