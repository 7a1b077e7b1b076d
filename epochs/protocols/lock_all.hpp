// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_lock_all and MPI_Win_unlock_all (MPI 4.0 section 12.5.3) as resumable protocols over the lock table of a
// process (lock_table.hpp, which has the rules). They are run like those of lock_target.hpp.
//
// Thread safety: an object belongs to one thread; it takes the guard of the table, and never keeps it from one
// advance() to the next. Cost in remote operations: 1 with a global lock, else 1 per rank, and those of waiting
// (lock.hpp).
#pragma once

#include <algorithm>
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
  typename M::Operation* failed_operation() { return failed_operation_of<M>(part_); }
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
