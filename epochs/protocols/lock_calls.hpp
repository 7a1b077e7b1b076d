// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_lock, unlock, lock_all and unlock_all (MPI 4.0 section 12.5.3) as resumable protocols over the lock table of
// a process (lock_table.hpp, which has the rules).
//
// The caller calls advance() until it returns true. If failed_operation() is not null in between, the caller takes the
// error of that operation and calls advance() again: the protocol releases what it has acquired. A lock may wait for
// other processes even then, until it can leave a queue. stop_waiting() ends that wait, or that for a lost lock.
//
// Thread safety: an object belongs to one thread; it takes the guard of the table, and never keeps it from one
// advance() to the next. Cost in remote operations: that of lock.hpp; a lock_all 1 with a global lock, else 1 per rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// Acquires the lock of a target, or that and the global lock, which it requests together: one round trip if neither is
// contended. If the target's lock is held while the global lock turns out to be contended, the target's lock is
// released and requested again behind the global lock. Otherwise it would block processes that are past the global
// lock, for which a waiting lock_all waits.
template <RemoteMemory M>
class AcquireLocks {
 public:
  // Of the target only. `taken`: what its lock word held when the ticket was taken, if it was taken before.
  AcquireLocks(M& memory, int self, int target, LockType type, std::uint32_t wake_index,
               const std::optional<std::uint64_t>& taken)
      : memory_(memory), self_(self), target_(target), type_(type), wake_index_(wake_index) {
    if (taken) {
      lock_.emplace(memory, self, target, type, wake_index, *taken);
    } else {
      lock_.emplace(memory, self, target, type, wake_index);
    }
  }
  // An exclusive lock and the global lock. It may wait at both, and so has two wake words.
  AcquireLocks(M& memory, int self, int target, int home, std::uint32_t global_wake_index, std::uint32_t wake_index)
      : AcquireLocks(memory, self, target, LockType::kExclusive, wake_index, {}) {
    global_lock_.emplace(memory, self, home, LockType::kExclusive, global_wake_index, LockOf::kGlobal);
  }

  // Returns true when all are held, or when it has failed. Only this rank can remove itself from a queue, so what has
  // not failed continues until its lock is held. Then the lock of the target is released, and the caller releases the
  // global lock if that is held.
  bool advance() {
    const bool passed = !global_lock_ || global_lock_->advance();
    for (;;) {
      if (release_) {
        if (!release_->advance()) return false;
        if (failed_) return passed;
        release_.reset();
        lock_.reset();
      }
      if (!lock_) {
        if (!passed || failed_) return passed;
        lock_.emplace(memory_, self_, target_, type_, wake_index_);
      }
      if (!lock_->advance()) return false;
      if (failed_ ? !lock_->held() : passed) return passed;
      if (!failed_ && !global_lock_->has_ticket()) return false;
      release_.emplace(memory_, target_, type_, lock_->token());
    }
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = global_lock_ ? global_lock_->failed_operation() : nullptr;
    if (failed == nullptr && release_) failed = release_->failed_operation();
    if (failed == nullptr && lock_) failed = lock_->failed_operation();
    failed_ = failed_ || failed != nullptr;
    return failed;
  }
  // The lock in whose queue it waits, or nothing. If it waits at both locks, the global lock.
  std::optional<AwaitedLock> awaited() const {
    const std::optional<AwaitedLock> global = global_lock_ ? global_lock_->awaited() : std::nullopt;
    return global || !lock_ ? global : lock_->awaited();
  }
  // Ends the wait in that queue, as a failure would; that in another one goes on. Precondition: awaited().
  void stop_waiting() {
    failed_ = true;
    const bool global = global_lock_ && global_lock_->awaited();
    global ? global_lock_->stop_waiting() : lock_->stop_waiting();
  }

  // After the end: whether all are held, their tokens, and whether a peer may still write to a wake word.
  bool ok() const { return !failed_; }
  bool saw_exposure() const { return lock_->saw_exposure(); }
  LockToken token() const { return lock_->token(); }
  bool may_wake() const { return lock_ && lock_->may_wake(); }
  bool global_lock_held() const { return global_lock_ && global_lock_->held(); }
  LockToken global_lock_token() const { return global_lock_->token(); }
  bool global_lock_may_wake() const { return global_lock_->may_wake(); }

 private:
  M& memory_;
  int self_;
  int target_;
  LockType type_;
  std::uint32_t wake_index_;
  bool failed_ = false;  // some operation
  std::optional<AcquireLock<M>> global_lock_;
  std::optional<AcquireLock<M>> lock_;
  std::optional<ReleaseLock<M>> release_;  // of a lock held before the global lock, or after a failure
};

// Keeps lock_alls from the global lock for ever, if one of them waits for exclusive locks, or if none is present: later
// ones then wait behind the caller. Exclusive locks no longer need the global lock (rule 9). For a window in which a
// rank has ended. Precondition: the caller waits in the queue of the global lock for an exclusive lock, and keeps this
// place for ever. Cost in remote operations: 2, more beside concurrent departures.
template <RemoteMemory M>
class LoseGlobalLock {
 public:
  LoseGlobalLock(M& memory, int home) : memory_(memory), home_(home) { memory_.read(operation_, home_, kWord); }
  bool advance() {
    while (!lost_ && operation_.done()) {
      const std::uint64_t found = operation_.value();
      if (reads_lock_word_) {
        lost_ = LockWord::readers(found) == 0;
      } else if (found == expected_ || DrainWord::is_lost(found)) {
        lost_ = true;
      } else if (DrainWord::waiter(found) != 0 && DrainWord::departed(found) < 0) {
        expected_ = found;
        memory_.compare_and_swap(operation_, home_, kWord, found, found + DrainWord::lose());
      } else {
        reads_lock_word_ = true;
        memory_.read(operation_, home_, kGlobalLock.word());
      }
    }
    return lost_.has_value();
  }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }
  bool lost() const { return lost_.value_or(false); }

 private:
  static constexpr std::uint32_t kWord = kGlobalLock.drain_word(LockType::kExclusive);
  M& memory_;
  typename M::Operation operation_;
  std::optional<std::uint64_t> expected_;  // what the swap replaces
  int home_;
  bool reads_lock_word_ = false;
  std::optional<bool> lost_;
};

// Acquires the lock of a target and, where rule 2 asks for it, the global lock. It claims the wake words and ends their
// use.
template <RemoteMemory M, class Table>
class LockTarget {
 public:
  // Precondition: no lock is deferred (rule 4). `taken`: what the lock word held when the ticket was taken, if it was
  // taken before; the process has one thread then. `carried`: a lock that saw an exposure is kept (rule 6). `near`: of
  // the target, if it may be used (rule 8).
  LockTarget(M& memory, Table& table, int target, LockType type, const std::optional<std::uint64_t>& taken = {},
             bool carried = false, const NearPlace& near = {})
      : memory_(memory), table_(table), taken_(taken), target_(target), type_(type), carried_(carried), place_(near) {}

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kEnter:
          if (!enter()) return false;
          break;
        case Step::kClaim:
          if (!claim()) return false;
          break;
        case Step::kNear:
          if (!std::get<AcquireNear<Near>>(part_).advance()) return false;
          take_near(std::get<AcquireNear<Near>>(part_));
          break;
        case Step::kAcquire:
          if (!std::get<Acquire>(part_).advance()) return false;
          take(std::get<Acquire>(part_));
          break;
        case Step::kRelease:
          if (!std::get<Release>(part_).advance()) return false;
          leave_near();
          break;
        case Step::kLeaveNear:
          if (!std::get<LeaveNear<Near>>(part_).advance()) return false;
          end_near();
          step_ = Step::kDone;
          break;
        case Step::kDone: return true;
      }
    }
  }
  typename M::Operation* failed_operation() {
    if (auto* acquire = std::get_if<Acquire>(&part_)) return acquire->failed_operation();
    if (auto* release = std::get_if<Release>(&part_)) return release->failed_operation();
    return nullptr;
  }
  LockType type() const { return type_; }
  // The lock in whose queue it waits, or nothing. If it waits at both locks, the global lock.
  std::optional<AwaitedLock> awaited() const {
    if (step_ == Step::kNear) return AwaitedLock{target_, kTargetLock.word(), true};
    return step_ == Step::kAcquire ? std::get<Acquire>(part_).awaited() : std::nullopt;
  }
  // Ends the wait in this queue, without the lock; that in another one goes on. Precondition: awaited(). The place in
  // the queue and its wake words stay in use, and other locks of the target or of the window may wait for ever.
  void stop_waiting() {
    if (step_ == Step::kAcquire) return std::get<Acquire>(part_).stop_waiting();
    end_claim(false, false, {});  // the near words of this rank stay in use
    give_back(false);
  }

  // The result, after advance() has returned true. A lock that is not held has met a failed operation, an exposure, or
  // a lack of wake words.
  bool ok() const { return held_; }
  bool saw_exposure() const { return saw_exposure_; }
  // Whether failed acquisitions of this process keep so many wake words in use that the process cannot wait for a lock
  // any more.
  bool out_of_wake_words() const { return out_of_wake_words_; }
  LockToken token() const { return token_; }
  std::uint8_t near() const { return near_; }  // HeldLock::near

 private:
  using Near = typename M::Near;
  using Acquire = AcquireLocks<M>;
  using Release = ReleaseLocks<M, 2>;
  enum class Step : std::uint8_t { kEnter, kClaim, kNear, kAcquire, kRelease, kLeaveNear, kDone };

  bool enter() {
    const auto held = table_.guard();
    if (table_.needs_global_lock(type_)) {
      const auto entry = table_.enter_global_lock();
      if (entry == Table::Entry::kWait) return false;
      uses_global_lock_ = true;
      first_ = entry == Table::Entry::kFirst;
    }
    step_ = Step::kClaim;
    return true;
  }
  bool claim() {
    {
      const auto held = table_.guard();
      out_of_wake_words_ = !table_.can_have_wake_words(first_ ? 2 : 1);
      if (!out_of_wake_words_ && !table_.claim_wake_words(std::span(words_).first(first_ ? 2 : 1))) return false;
      if (out_of_wake_words_ && first_) entered({});
    }
    if (out_of_wake_words_) {
      give_back(false);
    } else if (begin_near()) {
      part_.template emplace<AcquireNear<Near>>(memory_.near(), table_.self(), target_, place_.home);
      step_ = Step::kNear;
    } else {
      begin_acquire();
    }
    return true;
  }
  void begin_acquire() {
    step_ = Step::kAcquire;
    if (first_) {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, table_.home(), words_[1], words_[0]);
    } else {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, type_, words_[0], taken_);
    }
  }
  bool begin_near() {
    if (place_.most == 0 || type_ != LockType::kExclusive || taken_ || uses_global_lock_ != first_) return false;
    const auto held = table_.guard();
    if (!table_.begin_near()) return false;
    const bool gone = memory_.near().own(ControlBlock::kNearNext) != 0;
    if (gone) table_.end_near();
    return !gone;
  }
  void end_near() {
    const auto held = table_.guard();
    table_.end_near();
    near_ = 0;
  }
  // Ends the use of the wake words, which a peer may still write to, and the acquisition of the global lock, if this is
  // the thread that acquires it. `global`: its token, if it is held.
  void end_claim(bool may_wake, bool global_may_wake, const std::optional<LockToken>& global) {
    const auto guard = table_.guard();
    table_.end_wake_word(words_[0], may_wake);
    if (!first_) return;
    table_.end_wake_word(words_[1], global_may_wake);
    entered(global);
  }
  void entered(const std::optional<LockToken>& global) {
    uses_global_lock_ = global.has_value();
    table_.entered(global);
  }
  void take_near(const AcquireNear<Near>& near) {
    near_ = near.near();
    if (near.holds()) {
      end_claim(false, false, near.global_lock_token());
      token_ = near.token();
      held_ = true;
      step_ = Step::kDone;
    } else {
      if (near_ == 0) end_near();
      begin_acquire();
    }
  }
  void take(const Acquire& acquire) {
    end_claim(acquire.may_wake(), first_ && acquire.global_lock_may_wake(),
              acquire.global_lock_held() ? std::optional(acquire.global_lock_token()) : std::nullopt);
    if (acquire.ok()) {
      token_ = acquire.token();
      saw_exposure_ = acquire.saw_exposure();
      held_ = !saw_exposure_ || carried_;
    }
    if (held_) {
      step_ = Step::kDone;
    } else {
      give_back(saw_exposure_);
    }
  }
  // Releases the global lock, if this was its last user, and the lock of the target, if that is held.
  void give_back(bool lock) {
    std::optional<LockToken> global;
    if (uses_global_lock_) {
      const auto held = table_.guard();
      global = table_.leave_global_lock();
    }
    auto& releases = part_.template emplace<Release>();
    if (lock) releases.add(memory_, target_, type_, token_);
    if (global) releases.add(memory_, table_.home(), LockType::kExclusive, *global, LockOf::kGlobal);
    step_ = Step::kRelease;
  }
  void leave_near() {
    step_ = Step::kDone;
    if (near_ == 0) return;
    part_.template emplace<LeaveNear<Near>>(memory_.near(), table_.self(), target_, place_.home);
    step_ = Step::kLeaveNear;
  }

  M& memory_;
  Table& table_;
  std::variant<std::monostate, AcquireNear<Near>, Acquire, Release, LeaveNear<Near>> part_;
  std::optional<std::uint64_t> taken_;
  LockToken token_;
  std::array<std::uint32_t, 2> words_{};  // of the target's lock, and of the global lock
  int target_;
  LockType type_;
  Step step_ = Step::kEnter;
  bool first_ = false;             // it acquires the global lock for the process
  bool uses_global_lock_ = false;  // it counts among the table's users
  bool held_ = false;
  bool saw_exposure_ = false;
  bool out_of_wake_words_ = false;
  bool carried_;
  std::uint8_t near_ = 0;
  NearPlace place_;
};

// Releases a lock of a target that was taken out of the table. The release has two parts. Call advance() until it
// returns true; then call data_complete(), and advance() again until it returns true.
template <RemoteMemory M, class Table>
class UnlockTarget {
 public:
  // `near`: as given to LockTarget.
  UnlockTarget(M& memory, Table& table, const HeldLock& lock, const NearPlace& near = {})
      : memory_(memory),
        table_(table),
        lock_(lock),
        place_(near),
        uses_global_lock_(table.needs_global_lock(lock.type)) {
    if (uses_global_lock_) {
      const auto held = table_.guard();
      global_lock_ = table_.leave_global_lock_if_alone();
      uses_global_lock_ = !global_lock_;
    }
    passes_near_ = !uses_global_lock_ && may_pass_near(memory_.near(), lock_.near, place_);
  }
  // Whether the data of the epoch must be complete at the target before the first advance(). If not, it is enough that
  // the data are ordered before the release of the target's lock.
  bool needs_complete_data() const {
    if (passes_near_) return true;
    const bool departs = lock_.type == LockType::kShared || lock_.token.how() != LockToken::kSuccessor;
    return !departs || (with_global_lock() && table_.home() != lock_.target);
  }

  bool advance() {
    if (!std::exchange(begun_, true)) begin();
    if (leave_near_ && leave_near_->advance()) end_near();
    return releases_.advance() && !leave_near_;
  }
  // Call this function when the data of the epoch are complete at the target. It begins the release of the global lock
  // if that is still to be released. The release of a global lock at the own rank is ordered behind the data only by
  // their completion, and the last of several exclusive locks releases the global lock for the data of all of them.
  void data_complete() {
    if (uses_global_lock_) {
      const auto held = table_.guard();
      global_lock_ = table_.leave_global_lock();
    }
    release_global_lock();
  }
  typename M::Operation* failed_operation() { return releases_.failed_operation(); }

 private:
  void begin() {
    if (passes_near_) {
      pass_near(memory_.near(), lock_.near, lock_.token, global_lock_.value_or(LockToken()));
      global_lock_.reset();
      return end_near();
    }
    releases_.add(memory_, lock_.target, lock_.type, lock_.token, LockOf::kTarget, DataAccess::kEnds);
    if (with_global_lock()) release_global_lock();
    if (lock_.near != 0) leave_near_.emplace(memory_.near(), table_.self(), lock_.target, place_.home);
  }
  void release_global_lock() {
    if (global_lock_) releases_.add(memory_, table_.home(), lock_.type, *global_lock_, LockOf::kGlobal);
    global_lock_.reset();
  }
  void end_near() {
    leave_near_.reset();
    const auto held = table_.guard();
    table_.end_near();
  }
  bool with_global_lock() const { return global_lock_ && table_.home() != table_.self(); }

  M& memory_;
  Table& table_;
  HeldLock lock_;
  NearPlace place_;
  ReleaseLocks<M, 2> releases_;
  std::optional<LeaveNear<typename M::Near>> leave_near_;
  std::optional<LockToken> global_lock_;  // to be released
  bool uses_global_lock_;                 // it counts among the table's users still
  bool passes_near_ = false;              // hands both locks to a rank of this node
  bool begun_ = false;
};

// Releases what LockAll has acquired, all at once. Precondition: the data of the epoch are complete at all targets.
template <RemoteMemory M, class Table>
class UnlockAll {
 public:
  // `count`: of the locks.
  UnlockAll(M& memory, Table& table, int count) : table_(table) {
    for (int i = 0; i < count; ++i) {
      releases_.add(memory, table.rank_of_lock_all(i), LockType::kShared, table.lock_all_token(i),
                    table.of_lock_all(i));
    }
  }
  UnlockAll(M& memory, Table& table) : UnlockAll(memory, table, table.locks_of_lock_all()) {}

  bool advance() {
    if (over_ || !releases_.advance()) return over_;
    over_ = true;
    const auto held = table_.guard();
    table_.end_lock_all();
    return true;
  }
  typename M::Operation* failed_operation() { return releases_.failed_operation(); }

 private:
  Table& table_;
  ReleaseLocks<M, Table::kMostRanks> releases_;
  bool over_ = false;
};

// Acquires the global lock for a lock_all, or every rank's lock in the order of ranks. A lock_all ignores exposures
// (exposure.hpp). It would cost less to acquire each lock at the first operation on its target, but two such epochs
// that use the targets in different orders could each wait behind a writer that waits for the other one.
template <RemoteMemory M, class Table>
class LockAll {
 public:
  LockAll(M& memory, Table& table) : memory_(memory), table_(table) {}

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kBegin: {
          const auto held = table_.guard();
          if (!table_.begin_lock_all()) return false;
          step_ = Step::kClaim;
          break;
        }
        case Step::kClaim:
          if (!claim()) return false;
          break;
        case Step::kAcquire:
          if (!std::get<Acquire>(part_).advance()) return false;
          take(std::get<Acquire>(part_));
          break;
        case Step::kRelease: return std::get<UnlockAll<M, Table>>(part_).advance();
        case Step::kHeld: return true;
      }
    }
  }
  typename M::Operation* failed_operation() {
    if (auto* acquire = std::get_if<Acquire>(&part_)) return acquire->failed_operation();
    if (auto* unlock = std::get_if<UnlockAll<M, Table>>(&part_)) return unlock->failed_operation();
    return nullptr;
  }
  bool out_of_wake_words() const { return out_of_wake_words_; }
  // The rank whose lock it acquires now, in a window without a global lock.
  int awaited_rank() const { return std::min(next_, table_.ranks() - 1); }
  static constexpr LockType type() { return LockType::kShared; }
  // As LockTarget.
  std::optional<AwaitedLock> awaited() const {
    return step_ == Step::kAcquire ? std::get<Acquire>(part_).awaited() : std::nullopt;
  }
  void stop_waiting() { std::get<Acquire>(part_).stop_waiting(); }
  bool ok() const { return step_ == Step::kHeld; }

 private:
  using Acquire = AcquireLock<M>;
  enum class Step : std::uint8_t { kBegin, kClaim, kAcquire, kRelease, kHeld };

  bool claim() {
    {
      const auto held = table_.guard();
      out_of_wake_words_ = !table_.can_have_wake_words(1);
      if (!out_of_wake_words_ && !table_.claim_wake_words(std::span(&word_, 1))) return false;
    }
    if (out_of_wake_words_) {
      give_back();
    } else {
      part_.template emplace<Acquire>(memory_, table_.self(), table_.rank_of_lock_all(next_), LockType::kShared, word_,
                                      table_.of_lock_all(next_));
      step_ = Step::kAcquire;
    }
    return true;
  }
  void take(const Acquire& acquire) {
    {
      const auto guard = table_.guard();
      table_.end_wake_word(word_, acquire.may_wake());
    }
    // A lock may be held although its hand-off to others has failed.
    if (acquire.held()) table_.lock_all_token(next_++) = acquire.token();
    if (acquire.failed()) return give_back();
    step_ = next_ == table_.locks_of_lock_all() ? Step::kHeld : Step::kClaim;
  }
  void give_back() {
    part_.template emplace<UnlockAll<M, Table>>(memory_, table_, next_);
    step_ = Step::kRelease;
  }

  M& memory_;
  Table& table_;
  std::variant<std::monostate, Acquire, UnlockAll<M, Table>> part_;
  std::uint32_t word_ = 0;
  int next_ = 0;  // the lock that is acquired
  bool out_of_wake_words_ = false;
  Step step_ = Step::kBegin;
};

}  // namespace farside::epochs
