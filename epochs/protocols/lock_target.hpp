// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_lock and MPI_Win_unlock (MPI 4.0 section 12.5.3) as resumable protocols over the lock table of a process
// (lock_table.hpp, which has the rules).
//
// The caller calls advance() until it returns true. If failed_operation() is not null in between, the caller takes the
// error of that operation and calls advance() again: the protocol releases what it has acquired. LockTarget may wait
// for other processes even then, until it can leave a queue. stop_waiting() ends that wait, or that for a lost lock.
//
// Thread safety: an object belongs to one thread; it takes the guard of the table, and never keeps it from one
// advance() to the next. Cost in remote operations: see lock.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_with_global.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

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
          if (!advance_near()) return false;
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
  // The operation that has failed since the last call, or null.
  typename M::Operation* failed_operation() {
    typename M::Operation* const failed = failed_operation_of<M>(part_);
    if (failed != nullptr) failed_ = failed_part_ = true;
    return failed;
  }
  LockType type() const { return type_; }
  // The lock in whose queue it waits, or nothing. If it waits at both locks, the global lock.
  std::optional<AwaitedLock> awaited() const {
    const auto* both = step_ == Step::kBoth ? &std::get<AcquireBoth>(part_) : nullptr;
    if (both != nullptr && both->waits_for_global_lock()) return AwaitedLock{table_.home(), GlobalLock::kWord};
    const bool near = step_ == Step::kNear;
    const bool waits = near || (both != nullptr && both->waits_for_lock()) ||
                       (step_ == Step::kLock && std::get<Acquire>(part_).waits());
    return waits ? std::optional(AwaitedLock{target_, TargetLock::kWord, near}) : std::nullopt;
  }
  // Ends the wait in this queue, without the lock; that in another one goes on. Precondition: awaited(). The place in
  // the queue and its wake words stay in use, and other locks of the target or of the window may wait for ever.
  void stop_waiting() {
    failed_ = true;
    if (step_ == Step::kBoth) return std::get<AcquireBoth>(part_).stop_waiting();
    const bool near = step_ == Step::kNear;  // the near words of this rank stay in use, too
    {
      const auto guard = table_.guard();
      table_.end_wake_word(words_[0], !near);
      if (near && first_) {
        table_.end_wake_word(words_[1], false);
        table_.entered({});
        uses_global_lock_ = false;
      }
    }
    leave_global_lock();
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
  using Acquire = AcquireLock<M, TargetLock>;
  using AcquireBoth = AcquireWithGlobalLock<M>;
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  enum class Step : std::uint8_t {
    kEnter,
    kClaim,
    kNear,
    kLock,
    kBoth,
    kRefuse,
    kLeave,
    kLeaveGlobalLock,
    kLeaveNear,
    kDone
  };

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
    if (begin_near()) {
      part_.template emplace<AcquireNear<Near>>(memory_.near(), table_.self(), target_, place_.home);
      step_ = Step::kNear;
    } else {
      begin_lock();
    }
    return true;
  }
  void begin_lock() {
    step_ = first_ ? Step::kBoth : Step::kLock;
    if (first_) {
      part_.template emplace<AcquireBoth>(memory_, table_.self(), target_, table_.home(), words_[0], words_[1]);
    } else if (taken_) {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, type_, words_[0], *taken_);
    } else {
      part_.template emplace<Acquire>(memory_, table_.self(), target_, type_, words_[0]);
    }
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
  bool begin_near() {
    if (place_.most == 0 || type_ != LockType::kExclusive || taken_ || uses_global_lock_ != first_) return false;
    const auto held = table_.guard();
    // The ranks of the queue must agree on whether they hand on the global lock.
    if (table_.global_lock_lost() || !table_.begin_near()) return false;
    const bool gone = memory_.near().own(ControlBlock::kNearNext) != 0;
    if (gone) table_.end_near();
    return !gone;
  }
  void end_near() {
    const auto held = table_.guard();
    table_.end_near();
    near_ = 0;
  }
  bool advance_near() {
    auto& near = std::get<AcquireNear<Near>>(part_);
    if (!near.advance()) return false;
    near_ = near.near();
    if (near.holds()) {
      const auto guard = table_.guard();
      table_.end_wake_word(words_[0], false);
      if (first_) table_.end_wake_word(words_[1], false);
      if (first_) table_.entered(near.global_lock_token());
      token_ = near.token();
      held_ = true;
      step_ = Step::kDone;
    } else {
      if (near_ == 0) end_near();
      begin_lock();
    }
    return true;
  }
  void leave_near() {
    step_ = Step::kDone;
    if (near_ == 0) return;
    part_.template emplace<LeaveNear<Near>>(memory_.near(), table_.self(), target_, place_.home);
    step_ = Step::kLeaveNear;
  }
  bool advance_lock() {
    auto& acquire = std::get<Acquire>(part_);
    if (!failed_part_ && !acquire.advance()) return false;
    {
      const auto guard = table_.guard();
      table_.end_wake_word(words_[0], failed_part_ && acquire.has_ticket() && !acquire.held());
    }
    // If the lock is held although its hand-off to others has failed, it is released, so that it does not block other
    // processes as well.
    after(acquire.held(), acquire.token(), acquire.saw_exposure());
    return true;
  }
  bool advance_both() {
    auto& both = std::get<AcquireBoth>(part_);
    if (!(failed_ ? both.advance_after_failure() : both.advance())) return false;
    leave_both();
    if (failed_) {
      leave_global_lock();
    } else {
      after(true, both.token(), both.saw_exposure());
    }
    return true;
  }
  void leave_both() {
    auto& both = std::get<AcquireBoth>(part_);
    const auto guard = table_.guard();
    table_.end_wake_word(words_[0], both.global_lock_may_wake());
    table_.end_wake_word(words_[1], both.lock_may_wake());
    uses_global_lock_ = both.global_lock_held();
    table_.entered(uses_global_lock_ ? std::optional(both.global_lock_token()) : std::nullopt);
  }
  // The acquisition of the target's lock is over.
  void after(bool held, LockToken token, bool saw_exposure) {
    token_ = token;
    saw_exposure_ = saw_exposure && !failed_;
    held_ = held && !failed_ && (!saw_exposure || carried_);
    if (held_) {
      step_ = Step::kDone;
      return;
    }
    failed_part_ = false;
    if (!held) return leave_global_lock();
    part_.template emplace<Release>(memory_, target_, type_, token_);
    step_ = Step::kRefuse;
  }
  void leave_global_lock() {
    failed_part_ = false;
    std::optional<LockToken> token;
    if (uses_global_lock_) {
      const auto held = table_.guard();
      token = table_.leave_global_lock();
    }
    if (!token) return leave_near();
    part_.template emplace<ReleaseGlobal>(memory_, table_.home(), LockType::kExclusive, *token);
    step_ = Step::kLeaveGlobalLock;
  }

  M& memory_;
  Table& table_;
  std::variant<std::monostate, AcquireNear<Near>, Acquire, AcquireBoth, Release, ReleaseGlobal, LeaveNear<Near>> part_;
  std::optional<std::uint64_t> taken_;
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
    passes_near_ =
        !uses_global_lock_ && !table_.global_lock_lost() && may_pass_near(memory_.near(), lock_.near, place_);
  }
  // Whether the data of the epoch must be complete at the target before the first advance(). If not, it is enough that
  // the data are ordered before the release of the target's lock.
  bool needs_complete_data() const {
    if (passes_near_) return true;
    const bool departs = lock_.type == LockType::kShared || lock_.token.how() != LockToken::kSuccessor;
    return !departs || (with_global_lock() && table_.home() != lock_.target);
  }

  bool advance() {
    for (;;) {
      switch (step_) {
        case Step::kBegin:
          if (passes_near_) {
            pass_near(memory_.near(), lock_.near, lock_.token, global_lock_.value_or(LockToken()));
            global_lock_.reset();
            end_near();
            step_ = Step::kBetween;
            break;
          }
          if (with_global_lock()) {
            part_.template emplace<ReleaseBoth>(memory_, lock_.target, lock_.token, table_.home(), *global_lock_);
            global_lock_.reset();
          } else {
            part_.template emplace<Release>(memory_, lock_.target, lock_.type, lock_.token, LockOf::kTarget,
                                            DataAccess::kEnds);
          }
          if (lock_.near != 0) leave_near_.emplace(memory_.near(), table_.self(), lock_.target, place_.home);
          step_ = Step::kFirst;
          break;
        case Step::kFirst:
          if (leave_near_ && leave_near_->advance()) end_near();
          if (!advance_part() || leave_near_) return false;
          step_ = Step::kBetween;
          break;
        case Step::kBetween: return true;
        case Step::kSecond:
          if (!advance_part()) return false;
          step_ = Step::kDone;
          break;
        case Step::kDone: return true;
      }
    }
  }
  // Call this function when the data of the epoch are complete at the target. It begins the release of the global lock
  // if that is still to be released. The release of a global lock at the own rank is ordered behind the data only by
  // their completion, and the last of several exclusive locks releases the global lock for the data of all of them.
  void data_complete() {
    if (uses_global_lock_) {
      const auto held = table_.guard();
      global_lock_ = table_.leave_global_lock();
      uses_global_lock_ = false;
    }
    failed_part_ = false;
    step_ = Step::kDone;
    if (!global_lock_) return;
    part_.template emplace<ReleaseGlobal>(memory_, table_.home(), lock_.type, *global_lock_);
    step_ = Step::kSecond;
  }
  typename M::Operation* failed_operation() {
    typename M::Operation* const failed = failed_operation_of<M>(part_);
    failed_part_ = failed_part_ || failed != nullptr;
    return failed;
  }

 private:
  using Release = ReleaseLock<M, TargetLock>;
  using ReleaseGlobal = ReleaseLock<M, GlobalLock>;
  using ReleaseBoth = ReleaseWithGlobalLock<M>;
  enum class Step : std::uint8_t { kBegin, kFirst, kBetween, kSecond, kDone };

  void end_near() {
    leave_near_.reset();
    const auto held = table_.guard();
    table_.end_near();
  }
  bool with_global_lock() const { return global_lock_ && table_.home() != table_.self(); }
  bool advance_part() {
    // After a failure of one release it continues the other one.
    if (auto* both = std::get_if<ReleaseBoth>(&part_)) return both->advance();
    if (failed_part_) return true;
    if (auto* global = std::get_if<ReleaseGlobal>(&part_)) return global->advance();
    return std::get<Release>(part_).advance();
  }

  M& memory_;
  Table& table_;
  HeldLock lock_;
  NearPlace place_;
  std::variant<std::monostate, Release, ReleaseBoth, ReleaseGlobal> part_;
  std::optional<LeaveNear<typename M::Near>> leave_near_;
  std::optional<LockToken> global_lock_;  // to be released
  bool uses_global_lock_;                 // it counts among the table's users still
  bool failed_part_ = false;              // an operation of the present part has failed
  bool passes_near_ = false;              // hands both locks to a rank of this node
  Step step_ = Step::kBegin;
};

}  // namespace farside::epochs
