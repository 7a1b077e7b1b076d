// SPDX-License-Identifier: BSD-3-Clause
// What the gate (lock.hpp) knows of windows exposed by a post: lock_all passes it and takes no rank's lock, where the mark of
// an exposure stands (ExposureMark). So a post counts its rank at the gate as well, and looks for lock_alls; a lock_all
// that has passed looks for such ranks. Of two that come at once at least one sees the other (MPI 4.0 section 12.5.3: a
// window may not be locked and exposed at once), unless an exclusive lock has come to the gate meanwhile: then its words may
// not tell whether the lock_alls hold or wait, and a post is refused only where they do tell.
//
// Cost: one remote atomic and one read for a post, one atomic for the end of its exposure, one read for lock_all. So
// this is for those who have the gate mapped, or do not mind (FARSIDE_CHECK=strict).
#pragma once

#include <cstdint>

#include "epochs/lock_words.hpp"
#include "transport/remote_memory.hpp"

namespace farside::epochs {

// Counts a rank as exposed, unless a lock_all holds.
template <RemoteMemory M>
class ExposeAtGate {
 public:
  ExposeAtGate(M& memory, int home) : memory_(memory), home_(home) {
    memory_.fetch_add(operation_, home_, ControlBlock::kGateExposed, 1);
  }

  bool advance() {
    while (operation_.done()) {
      switch (step_) {
        case Step::kCounted:
          memory_.read(operation_, home_, Gate::kWord);
          step_ = Step::kGate;
          break;
        case Step::kGate: {
          // lock_alls that wait will look when they have passed. While nobody of the other group is there, all hold.
          const std::uint64_t gate = operation_.value();
          if (LockWord::readers(gate) == 0) return true;
          if (LockWord::writers(gate) == 0) {
            refuse();
          } else {
            memory_.read(operation_, home_, Gate::drain_word(LockType::kShared));
            step_ = Step::kDrain;
          }
          break;
        }
        case Step::kDrain: {
          // Those that an exclusive lock waits for hold. Of others nobody can say: they may wait for it, or have left
          // without it being said at the gate (Hold).
          const std::uint64_t drain = operation_.value();
          if (DrainWord::waiter(drain) == 0 || DrainWord::left(drain) >= 0) return true;
          refuse();
          break;
        }
        case Step::kRefused: return true;
      }
    }
    return false;
  }

  // When it is over: false if a lock_all holds, and nothing has changed.
  bool exposed() const { return step_ != Step::kRefused; }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  enum class Step : std::uint64_t { kCounted, kGate, kDrain, kRefused };

  void refuse() {
    memory_.fetch_add(operation_, home_, ControlBlock::kGateExposed, -std::uint64_t{1});
    step_ = Step::kRefused;
  }

  M& memory_;
  typename M::Operation operation_;
  Step step_ = Step::kCounted;
  std::int64_t home_;
};

// Ends that.
template <RemoteMemory M>
class ConcealAtGate {
 public:
  ConcealAtGate(M& memory, int home) {
    memory.fetch_add(operation_, home, ControlBlock::kGateExposed, -std::uint64_t{1});
  }
  bool advance() const { return operation_.done(); }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  typename M::Operation operation_;
};

// For a lock_all that has passed the gate: whether some rank is exposed.
template <RemoteMemory M>
class LookForExposures {
 public:
  LookForExposures(M& memory, int home) { memory.read(operation_, home, ControlBlock::kGateExposed); }
  bool advance() const { return operation_.done(); }
  bool any() const { return operation_.value() != 0; }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  typename M::Operation operation_;
};

}  // namespace farside::epochs
