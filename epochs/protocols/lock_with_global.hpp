// SPDX-License-Identifier: BSD-3-Clause
// The lock of a target and the global lock together (lock.hpp): what an exclusive lock acquires and releases in a
// window that has a global lock. Cost in remote operations: uncontended 2 at once and 2 at once.
//
// Thread safety and errors: as of lock.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "epochs/protocols/lock.hpp"

namespace farside::epochs {

// Acquires the global lock and the exclusive lock of a target, and asks for both at once: one round trip if neither
// is contended. If the target's lock is held while the global lock turns out to be contended, the target's lock is
// released and asked for again behind the global lock. Otherwise it would block processes that are past the global
// lock, for which a waiting lock_all waits.
template <RemoteMemory M>
class AcquireWithGlobalLock {
 public:
  // `global_lock_wake_index`, `lock_wake_index`: two wake words, as this rank may wait at both locks.
  AcquireWithGlobalLock(M& memory, int self, int target, int home, std::uint32_t global_lock_wake_index,
                        std::uint32_t lock_wake_index)
      : memory_(memory),
        self_(self),
        target_(target),
        lock_wake_index_(lock_wake_index),
        global_lock_(memory, self, home, LockType::kExclusive, global_lock_wake_index),
        lock_(std::in_place, memory, self, target, LockType::kExclusive, lock_wake_index) {}

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
        lock_.emplace(memory_, self_, target_, LockType::kExclusive, lock_wake_index_);
      }
      if (!lock_->advance()) return false;
      if (passed) return true;
      if (!global_lock_.has_ticket()) return false;
      release_.emplace(memory_, target_, LockType::kExclusive, lock_->token());
    }
  }

  bool saw_exposure() const { return lock_->saw_exposure(); }
  // Tokens of the target's lock and of the global lock. Precondition: advance() returned true.
  LockToken token() const { return lock_->token(); }
  LockToken global_lock_token() const { return global_lock_.token(); }
  // The failed operation, or null. Records whether it belongs to the global lock or to the target's lock.
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

  // Whether it waits in the queue of the global lock, and of the target's lock.
  bool waits_for_global_lock() const { return !global_lock_failed_ && global_lock_.waits(); }
  bool waits_for_lock() const { return !lock_failed_ && lock_ && lock_->waits(); }
  // Ends the wait for the global lock, if it waits there, or for the target's lock, as a failure would.
  void stop_waiting() { (waits_for_global_lock() ? global_lock_failed_ : lock_failed_) = true; }
  // After a failure, call this function instead of advance() until it returns true. Only this rank can remove itself
  // from a queue, so the acquisition that has not failed continues until its lock is held or it fails, too. This
  // function releases the lock of the target if that is held. The caller releases the global lock if
  // global_lock_held().
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
  // Whether a peer may still write to the wake word of a part that has failed, which has left its place in a queue.
  bool global_lock_may_wake() const { return global_lock_failed_ && global_lock_.has_ticket() && !global_lock_.held(); }
  bool lock_may_wake() const { return lock_failed_ && lock_ && lock_->has_ticket() && !lock_->held(); }

 private:
  M& memory_;
  int self_;
  int target_;
  std::uint32_t lock_wake_index_;
  AcquireLock<M, GlobalLock> global_lock_;
  std::optional<AcquireLock<M, TargetLock>> lock_;
  std::optional<ReleaseLock<M, TargetLock>> release_;  // of a lock held before the global lock, or after a failure
  bool global_lock_failed_ = false;
  bool lock_failed_ = false;
};

// Keeps lock_alls from the global lock for ever, if one of them waits for exclusive locks, or if none is present: later
// ones then wait behind the caller. Exclusive locks no longer need the global lock (LockTable::lose_global_lock). For a
// window in which a rank has ended.
// Precondition: the caller waits in the queue of the global lock for an exclusive lock, and keeps this place for ever.
// Cost in remote operations: 2, more beside concurrent departures.
template <RemoteMemory M>
class LoseGlobalLock {
 public:
  LoseGlobalLock(M& memory, int home) : memory_(memory), home_(home) { memory_.read(operation_, home_, kWord); }
  bool advance() {
    while (!over_ && operation_.done()) {
      const std::uint64_t found = operation_.value();
      if (reads_lock_word_) {
        over_ = true;
        lost_ = LockWord::readers(found) == 0;
        break;
      }
      over_ = lost_ = DrainWord::is_lost(found) || (tried_ && found == expected_);
      if (over_) break;
      if (!DrainWord::awaits_departures(found)) {
        reads_lock_word_ = true;
        memory_.read(operation_, home_, GlobalLock::kWord);
        continue;
      }
      tried_ = true;
      expected_ = found;
      memory_.compare_and_swap(operation_, home_, kWord, found, found + DrainWord::lose());
    }
    return over_;
  }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }
  bool lost() const { return lost_; }

 private:
  static constexpr std::uint32_t kWord = GlobalLock::drain_word(LockType::kExclusive);
  M& memory_;
  typename M::Operation operation_;
  std::uint64_t expected_ = 0;
  int home_;
  bool tried_ = false, reads_lock_word_ = false, over_ = false, lost_ = false;
};

// Releases an exclusive lock and the global lock, both at once. Precondition: no other exclusive lock of this process
// is left, and the operations under the lock are complete, or the home is the target, whose route orders both releases
// behind them.
template <RemoteMemory M>
class ReleaseWithGlobalLock {
 public:
  ReleaseWithGlobalLock(M& memory, int target, LockToken token, int home, LockToken global_lock_token)
      : lock_(memory, target, LockType::kExclusive, token, LockOf::kTarget, DataAccess::kEnds),
        global_lock_(memory, home, LockType::kExclusive, global_lock_token) {}

  // After one of the two releases has failed, continues the other one until it is over.
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
