// SPDX-License-Identifier: BSD-3-Clause
// What a process holds and waits for in one window: the locks of targets, the global lock behind them, the wake words
// of its waiting threads, a deferred lock, and the locks of a lock_all. LockTable is that state, with its rules;
// LockTarget, UnlockTarget, LockAll and UnlockAll are the resumable protocols that change it (MPI_Win_lock,
// MPI_Win_unlock, MPI_Win_lock_all, MPI_Win_unlock_all; MPI 4.0 section 12.5.3). They run over the same memories as the
// locks themselves.
//
// Rules:
//
//   1. A thread that may wait owns one wake word for each lock that it waits at. It owns them from before it takes a
//      ticket until nobody can write to them any more.
//   2. An exclusive lock needs the global lock, in a window that has one. One thread acquires the global lock for all
//      exclusive locks of the process, and the others wait for that thread: a second acquisition would wait for a
//      lock_all that waits for the first one.
//   3. The last exclusive lock of the process releases the global lock, after the data of all of them are complete. The
//      release may accompany that of the target's lock if no other exclusive lock is left, and if the data are complete
//      or the home of the global lock is the target, whose route orders the release behind them.
//   4. At most one lock of the process is deferred: the one that was requested last. The process acquires it before any
//      other lock, because locks are acquired in the order of the calls.
//   5. Without a global lock a lock_all acquires every rank's lock in the order of ranks. A lock word counts at most
//      one lock_all of each process (LockWord::kMostLockAlls), so the locks of the preceding lock_all are released
//      before.
//   6. A lock that saw an exposure (ExposureMark) is released and refused.
//   7. If an operation fails, what was acquired is released, and what was not acquired is not. A wake word that a
//      failed acquisition may still be woken by stays in use.
//
// Thread safety: the functions of LockTable are called with its guard held, but for the tokens of a lock_all, which
// belong to the thread that is in that lock_all. The protocols take the guard themselves, and never keep it from one
// advance() to the next. Cost in remote operations: see lock.hpp; LockAll 1, or 1 per rank. Memory: 16 bytes for each
// lock held, 8 for each rank's lock of a lock_all without a global lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// A lock of a target that this process holds, or has deferred.
struct HeldLock {
  std::int32_t target = 0;
  LockType type = LockType::kShared;
  bool acquired = false;  // else MPI_MODE_NOCHECK was given: there is nothing to release
  bool fast = false;      // by one atomic, on the fast path
  std::uint8_t unused = 0;
  LockToken token = {};  // for the release
};

// Traits: what a process and the explorer of interleavings do differently.
//   List<T>         push_back, back, pop_back, erase, empty, size, rbegin, rend
//   Guard           what guard() returns: holds a mutex where there are threads
//   Mutex           its argument
//   kMostRanks      of a window without a global lock
template <class Traits>
class LockTable {
 public:
  static constexpr int kNoGlobalLock = -1;
  static constexpr std::size_t kMostRanks = Traits::kMostRanks;
  using Locks = typename Traits::template List<HeldLock>;

  LockTable() = default;
  // `home`: the rank that has the global lock, or kNoGlobalLock.
  LockTable(int self, int ranks, int home) : self_(self), ranks_(ranks), home_(home) {}

  using Guard = typename Traits::Guard;
  [[nodiscard]] Guard guard() { return Guard(mutex_); }
  typename Traits::Mutex& mutex() { return mutex_; }

  int self() const { return self_; }
  int ranks() const { return ranks_; }
  int home() const { return home_; }
  bool has_global_lock() const { return home_ != kNoGlobalLock; }
  bool needs_global_lock(LockType type) const { return has_global_lock() && type == LockType::kExclusive; }

  // The locks of targets, in the order in which they were acquired; a deferred lock is the last one.
  Locks& locks() { return locks_; }
  const Locks& locks() const { return locks_; }
  // Takes the lock of the target out of the table. Precondition: there is one.
  HeldLock take(int target) {
    // The last one acquired is mostly the first one released.
    const auto found =
        std::find_if(locks_.rbegin(), locks_.rend(), [&](const HeldLock& l) { return l.target == target; });
    const HeldLock lock = *found;
    locks_.erase(std::next(found).base());
    return lock;
  }

  // Rule 4.
  void defer(int target, LockType type) {
    locks_.push_back({target, type, true});
    deferred_ = true;
  }
  bool has_deferred() const { return deferred_; }
  HeldLock& deferred() { return locks_.back(); }
  // Ends the deferral: the lock is acquired now, or its locked message is under way.
  void resume_deferred() { deferred_ = false; }

  // Rule 1. False, and nothing has changed, if not so many words are free.
  template <std::size_t kCount>
  bool claim_wake_words(std::array<std::uint32_t, kCount>& words) {
    std::uint32_t in_use = wake_words_;
    for (std::uint32_t& word : words) {
      word = static_cast<std::uint32_t>(std::countr_one(in_use));
      if (word >= ControlBlock::kWakeWords) return false;
      in_use |= 1U << word;
    }
    wake_words_ = in_use;
    return true;
  }
  void release_wake_words(std::span<const std::uint32_t> words) {
    for (const std::uint32_t word : words) wake_words_ &= ~(1U << word);
  }
  // Words that stay in use for ever (rule 7).
  void keep_wake_words(std::uint32_t count) { kept_wake_words_ += count; }
  // Whether so many words can become free.
  bool can_have_wake_words(std::uint32_t count) const { return kept_wake_words_ + count <= ControlBlock::kWakeWords; }
  std::uint32_t kept_wake_words() const { return kept_wake_words_; }
  std::uint32_t wake_words_in_use() const { return wake_words_; }

  // Rule 2. kFirst: the caller acquires the global lock and calls entered(). kWait: another thread is acquiring it.
  enum class Entry : std::uint8_t { kWait, kFirst, kInside };
  Entry enter_global_lock() {
    if (entering_) return Entry::kWait;
    entering_ = users_++ == 0;
    return entering_ ? Entry::kFirst : Entry::kInside;
  }
  // Without a token the acquisition has failed.
  void entered(const std::optional<LockToken>& token) {
    if (token) {
      global_lock_token_ = *token;
    } else {
      users_ = 0;
    }
    entering_ = false;
  }
  // Rule 3. The token of the global lock, if the caller is its last user and releases it now.
  std::optional<LockToken> leave_global_lock() {
    return --users_ == 0 ? std::optional(global_lock_token_) : std::nullopt;
  }
  std::optional<LockToken> leave_global_lock_if_alone() {
    if (users_ != 1) return {};
    users_ = 0;
    return global_lock_token_;
  }
  std::uint32_t global_lock_users() const { return users_; }

  // Of lock_all: the token of the global lock, or the locks of all ranks (rule 5).
  LockToken& lock_all_token() { return global_lock_token_; }
  std::span<LockToken> lock_all_tokens() {
    return std::span(lock_all_tokens_).first(static_cast<std::size_t>(std::min<std::size_t>(ranks_, kMostRanks)));
  }
  // False: the locks of the preceding lock_all are not released yet.
  bool begin_lock_all() {
    if (lock_all_counted_) return false;
    lock_all_counted_ = true;
    return true;
  }
  void end_lock_all() { lock_all_counted_ = false; }
  // The lock words count lock_alls apart, but not the lock_all of the own rank, which does not post meanwhile.
  LockOf by_lock_all(int rank) const { return rank == self_ ? LockOf::kTarget : LockOf::kAll; }

  // Whether nothing is held or waited for.
  bool is_idle() const { return locks_.empty() && !deferred_ && users_ == 0 && !entering_ && !lock_all_counted_; }

 private:
  typename Traits::Mutex mutex_;
  Locks locks_;
  std::int32_t self_ = 0;
  std::int32_t ranks_ = 1;
  std::int32_t home_ = kNoGlobalLock;
  std::uint32_t wake_words_ = 0;   // bits: those in use
  std::uint32_t kept_wake_words_ = 0;
  std::uint32_t users_ = 0;        // exclusive locks that this process holds or waits for, under the global lock
  bool entering_ = false;          // a thread acquires the global lock, and the others wait for it
  bool deferred_ = false;          // the last lock in locks_ is
  bool lock_all_counted_ = false;  // in every rank's lock word
  std::uint8_t unused_ = 0;
  LockToken global_lock_token_;  // of the exclusive locks, or of a lock_all
  std::array<LockToken, kMostRanks> lock_all_tokens_{};
};

// How the protocols below are run: advance() until it returns true. If failed_operation() is not null in between, the
// caller takes the error of that operation and goes on: the protocol releases what it has acquired, and is over with
// ok() false. LockTarget may wait for other processes even then, to be taken out of a queue; stop_waiting() ends that.

// Acquires the lock of a target.
template <RemoteMemory M, class Table>
class LockTarget {
 public:
  // `before`: what the lock word held, if the ticket was taken already. Precondition: no lock is deferred (rule 4).
  LockTarget(M& memory, Table& table, int target, LockType type, std::optional<std::uint64_t> before = {})
      : memory_(memory), table_(table), before_(before), target_(target), type_(type) {}

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kEnter:
          if (!enter()) return false;
          break;
        case Step::kClaim:
          if (!claim()) return false;
          break;
        case Step::kLock:
          if (!advance_lock()) return false;
          break;
        case Step::kBoth:
          if (!advance_both()) return false;
          break;
        case Step::kRefuse:
          if (!failed_part_ && !std::get<Release>(part_).advance()) return false;
          failed_part_ = false;
          leave_global_lock();
          break;
        case Step::kLeave: leave_global_lock(); break;
        case Step::kLeaveGlobalLock:
          if (!failed_part_ && !std::get<ReleaseGlobal>(part_).advance()) return false;
          step_ = Step::kOver;
          break;
        case Step::kOver: return true;
      }
    }
  }
  // The operation that has failed since the last call, or null.
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = nullptr;
    std::visit(
        [&](auto& part) {
          if constexpr (requires { part.failed_operation(); }) failed = part.failed_operation();
        },
        part_);
    if (failed != nullptr) failed_ = failed_part_ = true;
    return failed;
  }
  // After a failure: does not wait any longer until its place in a queue is reached. True if it had to: the place
  // stays, and so do its wake words, and other locks of the target or of the window may wait for ever.
  bool stop_waiting() {
    if (!failed_ || step_ != Step::kBoth) return false;
    leave_both(false);
    leave_global_lock();
    return true;
  }

  // Once it is over: whether the lock is held. If it is not, either an operation has failed, or the lock saw an
  // exposure.
  bool ok() const { return held_; }
  bool saw_exposure() const { return saw_exposure_; }
  // Acquisitions of this process that have failed keep so many wake words that a lock cannot be waited for any more.
  bool out_of_wake_words() const { return out_of_wake_words_; }
  LockToken token() const { return token_; }

 private:
  using Acquire = AcquireLock<M, TargetLock>;
  using AcquireBoth = AcquireWithGlobalLock<M>;
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  enum class Step : std::uint8_t { kEnter, kClaim, kLock, kBoth, kRefuse, kLeave, kLeaveGlobalLock, kOver };

  bool enter() {
    if (!table_.needs_global_lock(type_)) {
      step_ = Step::kClaim;
      return true;
    }
    const auto held = table_.guard();
    const auto entry = table_.enter_global_lock();
    if (entry == Table::Entry::kWait) return false;
    uses_global_lock_ = true;
    first_ = entry == Table::Entry::kFirst;
    step_ = Step::kClaim;
    return true;
  }
  bool claim() {
    if (!claim_words()) return out_of_wake_words_;
    if (first_) {
      part_.template emplace<AcquireBoth>(memory_, table_.self(), target_, table_.home(), words_[0], words_[1]);
      step_ = Step::kBoth;
      return true;
    }
    if (before_) {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, type_, words_[0], *before_);
    } else {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, type_, words_[0]);
    }
    step_ = Step::kLock;
    return true;
  }
  bool claim_words() {
    const auto held = table_.guard();
    if (!table_.can_have_wake_words(first_ ? 2 : 1)) {
      out_of_wake_words_ = true;
      if (first_) table_.entered({});
      uses_global_lock_ = uses_global_lock_ && !first_;
      step_ = Step::kLeave;
      return false;
    }
    if (first_) return table_.claim_wake_words(words_);
    std::array<std::uint32_t, 1> word{};
    if (!table_.claim_wake_words(word)) return false;
    words_[0] = word[0];
    return true;
  }
  bool advance_lock() {
    auto& acquire = std::get<Acquire>(part_);
    if (!failed_part_ && !acquire.advance()) return false;
    end_word(0, failed_part_ && acquire.has_ticket() && !acquire.held());
    // A lock that is held although its hand-off to others has failed must not keep them out as well.
    after(acquire.held(), acquire.token(), acquire.saw_exposure());
    return true;
  }
  bool advance_both() {
    auto& both = std::get<AcquireBoth>(part_);
    if (!(failed_ ? both.advance_after_failure() : both.advance())) return false;
    leave_both(true);
    if (failed_) {
      leave_global_lock();
    } else {
      after(true, both.token(), both.saw_exposure());
    }
    return true;
  }
  // `over`: the acquisition has ended by itself.
  void leave_both(bool over) {
    auto& both = std::get<AcquireBoth>(part_);
    end_word(0, both.global_lock_may_wake() || (!over && !both.global_lock_held()));
    end_word(1, both.lock_may_wake() || !over);
    const auto held = table_.guard();
    uses_global_lock_ = both.global_lock_held();
    table_.entered(uses_global_lock_ ? std::optional(both.global_lock_token()) : std::nullopt);
  }
  // `may_wake`: a peer may still write to the word.
  void end_word(std::size_t index, bool may_wake) {
    const auto held = table_.guard();
    if (may_wake) return table_.keep_wake_words(1);
    table_.release_wake_words(std::span(words_).subspan(index, 1));
  }
  // The acquisition of the target's lock is over.
  void after(bool held, LockToken token, bool saw_exposure) {
    token_ = token;
    saw_exposure_ = saw_exposure && !failed_;
    held_ = held && !failed_ && !saw_exposure;
    if (held_) {
      step_ = Step::kOver;
      return;
    }
    failed_part_ = false;
    if (!held) return leave_global_lock();
    part_.template emplace<Release>(memory_, target_, type_, token_);
    step_ = Step::kRefuse;
  }
  void leave_global_lock() {
    step_ = Step::kOver;
    failed_part_ = false;
    if (!uses_global_lock_) return;
    std::optional<LockToken> token;
    {
      const auto held = table_.guard();
      token = table_.leave_global_lock();
    }
    if (!token) return;
    part_.template emplace<ReleaseGlobal>(memory_, table_.home(), LockType::kExclusive, *token);
    step_ = Step::kLeaveGlobalLock;
  }

  M& memory_;
  Table& table_;
  std::variant<std::monostate, Acquire, AcquireBoth, Release, ReleaseGlobal> part_;
  std::optional<std::uint64_t> before_;
  LockToken token_;
  std::array<std::uint32_t, 2> words_{};
  int target_;
  LockType type_;
  Step step_ = Step::kEnter;
  bool first_ = false;             // it acquires the global lock for the process
  bool uses_global_lock_ = false;  // it counts among the table's users
  bool failed_ = false;            // some operation
  bool failed_part_ = false;       // some operation of the present part
  bool held_ = false;
  bool saw_exposure_ = false;
  bool out_of_wake_words_ = false;
};

// Releases a lock of a target that was taken out of the table. Two parts: advance() until it returns true, then
// data_complete() and advance() again until it returns true.
template <RemoteMemory M, class Table>
class UnlockTarget {
 public:
  UnlockTarget(M& memory, Table& table, const HeldLock& lock)
      : memory_(memory), table_(table), lock_(lock), uses_global_lock_(table.needs_global_lock(lock.type)) {
    if (!uses_global_lock_) return;
    const auto held = table_.guard();
    global_lock_ = table_.leave_global_lock_if_alone();
    uses_global_lock_ = !global_lock_;
  }
  // Before the first advance(): the data of the epoch must be complete at the target. Otherwise it is enough that they
  // are ordered before the release of the target's lock.
  bool needs_complete_data() const { return with_global_lock() && table_.home() != lock_.target; }

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kBegin:
          if (with_global_lock()) {
            part_.template emplace<ReleaseBoth>(memory_, lock_.target, lock_.token, table_.home(), *global_lock_);
            global_lock_.reset();
          } else {
            part_.template emplace<Release>(memory_, lock_.target, lock_.type, lock_.token);
          }
          step_ = Step::kFirst;
          break;
        case Step::kFirst:
          if (!advance_part()) return false;
          step_ = Step::kBetween;
          break;
        case Step::kBetween: return true;
        case Step::kSecond:
          if (!advance_part()) return false;
          step_ = Step::kOver;
          break;
        case Step::kOver: return true;
      }
    }
  }
  // The data of the epoch are complete at the target: nothing but their completion orders the release of a global lock
  // at the own rank behind them, and the last of several exclusive locks releases it for the data of all.
  void data_complete() {
    if (uses_global_lock_) {
      const auto held = table_.guard();
      global_lock_ = table_.leave_global_lock();
      uses_global_lock_ = false;
    }
    failed_part_ = false;
    step_ = Step::kOver;
    if (!global_lock_) return;
    part_.template emplace<ReleaseGlobal>(memory_, table_.home(), lock_.type, *global_lock_);
    step_ = Step::kSecond;
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = nullptr;
    std::visit(
        [&](auto& part) {
          if constexpr (requires { part.failed_operation(); }) failed = part.failed_operation();
        },
        part_);
    if (failed != nullptr) failed_ = failed_part_ = true;
    return failed;
  }
  bool ok() const { return !failed_; }

 private:
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  using ReleaseBoth = ReleaseWithGlobalLock<M>;
  enum class Step : std::uint8_t { kBegin, kFirst, kBetween, kSecond, kOver };

  bool with_global_lock() const { return global_lock_ && table_.home() != table_.self(); }
  bool advance_part() {
    if (auto* both = std::get_if<ReleaseBoth>(&part_)) return both->advance();  // the one that has not failed goes on
    if (failed_part_) return true;
    if (auto* global = std::get_if<ReleaseGlobal>(&part_)) return global->advance();
    return std::get<Release>(part_).advance();
  }

  M& memory_;
  Table& table_;
  HeldLock lock_;
  std::variant<std::monostate, Release, ReleaseBoth, ReleaseGlobal> part_;
  std::optional<LockToken> global_lock_;  // to be released
  bool uses_global_lock_;                 // it counts among the table's users still
  bool failed_ = false, failed_part_ = false;
  Step step_ = Step::kBegin;
};

// Releases the shared locks of the first ranks, all at once: those of a lock_all without a global lock.
template <RemoteMemory M, class Table>
class ReleaseRanks {
 public:
  ReleaseRanks(M& memory, Table& table, std::span<const LockToken> tokens) : count_(tokens.size()) {
    for (std::size_t rank = 0; rank < count_; ++rank) {
      const int target = static_cast<int>(rank);
      releases_[rank].emplace(memory, target, LockType::kShared, tokens[rank], table.by_lock_all(target));
    }
  }
  bool advance() {
    bool over = true;
    for (std::size_t rank = 0; rank < count_; ++rank) {
      if (failed_[rank] || (releases_[rank] && releases_[rank]->advance())) releases_[rank].reset();
      over = over && !releases_[rank];
    }
    return over;
  }
  typename M::Operation* failed_operation() {
    for (std::size_t rank = 0; rank < count_; ++rank) {
      if (!releases_[rank] || failed_[rank]) continue;
      typename M::Operation* failed = releases_[rank]->failed_operation();
      if (failed == nullptr) continue;
      failed_[rank] = true;
      return failed;
    }
    return nullptr;
  }

 private:
  std::size_t count_;
  std::array<std::optional<ReleaseLock<M, TargetLock>>, Table::kMostRanks> releases_{};
  std::array<bool, Table::kMostRanks> failed_{};
};

// Acquires the global lock for a lock_all, or every rank's lock in the order of ranks. A lock_all does not look at
// exposures (exposure.hpp). To acquire each lock at the first operation on its target would cost less, but two such
// epochs that use the targets in different orders could each wait behind a writer that waits for the other one.
template <RemoteMemory M, class Table>
class LockAll {
 public:
  LockAll(M& memory, Table& table) : memory_(memory), table_(table) {}

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kBegin: {
          const auto held = table_.guard();
          if (!table_.has_global_lock() && !table_.begin_lock_all()) return false;
          step_ = Step::kClaim;
          break;
        }
        case Step::kClaim:
          if (!claim()) return false;
          break;
        case Step::kAcquire:
          if (!advance_acquire()) return false;
          break;
        case Step::kRelease:
          if (!std::get<ReleaseRanks<M, Table>>(part_).advance()) return false;
          end();
          break;
        case Step::kReleaseLast:
          if (!failed_part_ && !advance_release()) return false;
          release_taken();
          break;
        case Step::kOver: return true;
      }
    }
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = nullptr;
    std::visit(
        [&](auto& part) {
          if constexpr (requires { part.failed_operation(); }) failed = part.failed_operation();
        },
        part_);
    if (failed != nullptr) failed_ = failed_part_ = true;
    return failed;
  }
  bool out_of_wake_words() const { return out_of_wake_words_; }
  bool ok() const { return !failed_; }

 private:
  using Acquire = AcquireLock<M, TargetLock>;
  using AcquireGlobal = AcquireLock<M, GlobalLock>;
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  enum class Step : std::uint8_t { kBegin, kClaim, kAcquire, kRelease, kReleaseLast, kOver };

  bool claim() {
    {
      const auto held = table_.guard();
      out_of_wake_words_ = !table_.can_have_wake_words(1);
      if (!out_of_wake_words_ && !table_.claim_wake_words(word_)) return false;
    }
    if (out_of_wake_words_) {
      failed_ = true;
      release_taken();
      return true;
    }
    if (table_.has_global_lock()) {
      part_.template emplace<AcquireGlobal>(memory_, table_.self(), table_.home(), LockType::kShared, word_[0]);
    } else {
      part_.template emplace<Acquire>(memory_, table_.self(), next_, LockType::kShared, word_[0],
                                      table_.by_lock_all(next_));
    }
    step_ = Step::kAcquire;
    return true;
  }
  bool advance_acquire() {
    bool held = false, has_ticket = false, over = failed_part_;
    LockToken token;
    std::visit(
        [&](auto& part) {
          if constexpr (requires { part.has_ticket(); }) {
            over = over || part.advance();
            held = part.held();
            has_ticket = part.has_ticket();
            if (over && held) token = part.token();
          }
        },
        part_);
    if (!over) return false;
    {
      const auto guard = table_.guard();
      if (!failed_part_ || held || !has_ticket) {
        table_.release_wake_words(word_);
      } else {
        table_.keep_wake_words(1);
      }
      if (!failed_part_ && table_.has_global_lock()) table_.lock_all_token() = token;
    }
    if (failed_part_) {
      failed_part_ = false;
      if (!held) {
        release_taken();
        return true;
      }
      // It is held although its hand-off to others has failed: it must not keep them out as well.
      if (table_.has_global_lock()) {
        part_.template emplace<ReleaseGlobal>(memory_, table_.home(), LockType::kShared, token);
      } else {
        part_.template emplace<Release>(memory_, next_, LockType::kShared, token, table_.by_lock_all(next_));
      }
      step_ = Step::kReleaseLast;
      return true;
    }
    if (table_.has_global_lock()) {
      step_ = Step::kOver;
      return true;
    }
    table_.lock_all_tokens()[static_cast<std::size_t>(next_)] = token;
    step_ = ++next_ == table_.ranks() ? Step::kOver : Step::kClaim;
    return true;
  }
  bool advance_release() {
    if (auto* global = std::get_if<ReleaseGlobal>(&part_)) return global->advance();
    return std::get<Release>(part_).advance();
  }
  // After a failure: the locks of the ranks before the one that failed.
  void release_taken() {
    failed_part_ = false;
    if (table_.has_global_lock()) {
      step_ = Step::kOver;
      return;
    }
    part_.template emplace<ReleaseRanks<M, Table>>(memory_, table_,
                                                   table_.lock_all_tokens().first(static_cast<std::size_t>(next_)));
    step_ = Step::kRelease;
  }
  void end() {
    const auto held = table_.guard();
    table_.end_lock_all();
    step_ = Step::kOver;
  }

  M& memory_;
  Table& table_;
  std::variant<std::monostate, Acquire, AcquireGlobal, Release, ReleaseGlobal, ReleaseRanks<M, Table>> part_;
  std::array<std::uint32_t, 1> word_{};
  int next_ = 0;  // the rank whose lock is acquired
  bool failed_ = false, failed_part_ = false;
  bool out_of_wake_words_ = false;
  Step step_ = Step::kBegin;
};

// Releases what LockAll has acquired. Precondition: the data of the epoch are complete at all targets.
template <RemoteMemory M, class Table>
class UnlockAll {
 public:
  // `token`: the table's lock_all_token(), read with the guard under which the epoch ended: from then on another thread
  // may begin a lock_all.
  UnlockAll(M& memory, Table& table, LockToken token) : table_(table) {
    if (table_.has_global_lock()) {
      part_.template emplace<ReleaseGlobal>(memory, table_.home(), LockType::kShared, token);
    } else {
      part_.template emplace<ReleaseRanks<M, Table>>(memory, table_, table_.lock_all_tokens());
    }
  }
  bool advance() {
    if (over_) return true;
    auto* ranks = std::get_if<ReleaseRanks<M, Table>>(&part_);
    if (ranks != nullptr ? !ranks->advance() : !failed_ && !std::get<ReleaseGlobal>(part_).advance()) return false;
    over_ = true;
    const auto held = table_.guard();
    if (!table_.has_global_lock()) table_.end_lock_all();
    return true;
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* failed = nullptr;
    std::visit(
        [&](auto& part) {
          if constexpr (requires { part.failed_operation(); }) failed = part.failed_operation();
        },
        part_);
    if (failed != nullptr) failed_ = true;
    return failed;
  }
  bool ok() const { return !failed_; }

 private:
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  Table& table_;
  std::variant<std::monostate, ReleaseGlobal, ReleaseRanks<M, Table>> part_;
  bool failed_ = false, over_ = false;
};

}  // namespace farside::epochs
