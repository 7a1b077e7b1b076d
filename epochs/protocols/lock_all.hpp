// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_lock_all and MPI_Win_unlock_all (MPI 4.0 section 12.5.3) as resumable protocols over the lock table of a
// process (lock_table.hpp, which has the rules). They are run like those of lock_target.hpp.
//
// Thread safety: an object belongs to one thread; it takes the guard of the table, and never keeps it from one
// advance() to the next. Cost in remote operations: 1 with a global lock, else 1 per rank, and those of waiting
// (lock.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

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
        case Step::kDone: return true;
      }
    }
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* const failed = failed_operation_of<M>(part_);
    if (failed != nullptr) failed_ = failed_part_ = true;
    return failed;
  }
  bool out_of_wake_words() const { return out_of_wake_words_; }
  // The rank whose lock it acquires now, in a window without a global lock.
  int awaited_rank() const { return std::min(next_, table_.ranks() - 1); }
  static constexpr LockType type() { return LockType::kShared; }
  // As LockTarget.
  std::optional<AwaitedLock> awaited() const {
    if (step_ != Step::kAcquire) return {};
    if (const auto* global = std::get_if<AcquireGlobal>(&part_))
      return global->waits() ? std::optional(AwaitedLock{table_.home(), GlobalLock::kWord}) : std::nullopt;
    return std::get<Acquire>(part_).waits() ? std::optional(AwaitedLock{next_, TargetLock::kWord}) : std::nullopt;
  }
  void stop_waiting() {
    failed_ = true;
    {
      const auto held = table_.guard();
      table_.end_wake_word(word_[0], true);
    }
    release_taken();
  }
  bool ok() const { return !failed_; }

 private:
  using Acquire = AcquireLock<M, TargetLock>;
  using AcquireGlobal = AcquireLock<M, GlobalLock>;
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  enum class Step : std::uint8_t { kBegin, kClaim, kAcquire, kRelease, kReleaseLast, kDone };

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
      table_.end_wake_word(word_[0], failed_part_ && has_ticket && !held);
      if (!failed_part_ && table_.has_global_lock()) table_.lock_all_token() = token;
    }
    if (failed_part_) {
      failed_part_ = false;
      if (!held) {
        release_taken();
        return true;
      }
      // The lock is held although its hand-off to others has failed. It is released, so that it does not block other
      // processes as well.
      if (table_.has_global_lock()) {
        part_.template emplace<ReleaseGlobal>(memory_, table_.home(), LockType::kShared, token);
      } else {
        part_.template emplace<Release>(memory_, next_, LockType::kShared, token, table_.by_lock_all(next_));
      }
      step_ = Step::kReleaseLast;
      return true;
    }
    if (table_.has_global_lock()) {
      step_ = Step::kDone;
      return true;
    }
    table_.lock_all_tokens()[static_cast<std::size_t>(next_)] = token;
    step_ = ++next_ == table_.ranks() ? Step::kDone : Step::kClaim;
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
      step_ = Step::kDone;
      return;
    }
    part_.template emplace<ReleaseRanks<M, Table>>(memory_, table_,
                                                   table_.lock_all_tokens().first(static_cast<std::size_t>(next_)));
    step_ = Step::kRelease;
  }
  void end() {
    const auto held = table_.guard();
    table_.end_lock_all();
    step_ = Step::kDone;
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
  // `token`: the table's lock_all_token(), read while the guard was held to end the epoch, because another thread may
  // begin a lock_all as soon as the guard is free.
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
    typename M::Operation* const failed = failed_operation_of<M>(part_);
    failed_ = failed_ || failed != nullptr;
    return failed;
  }

 private:
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  Table& table_;
  std::variant<std::monostate, ReleaseGlobal, ReleaseRanks<M, Table>> part_;
  bool failed_ = false, over_ = false;
};

}  // namespace farside::epochs
