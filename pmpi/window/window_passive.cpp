// SPDX-License-Identifier: BSD-3-Clause
// Passive target synchronization of a window (MPI 4.0 sections 12.5.3 and 12.5.4): locks, the global lock, flushes.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <iterator>
#include <utility>

#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock.hpp"
#include "pmpi/window/synchronization.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

using epochs::LockType;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at once.
constexpr epochs::Violation kPostedWhileLocked{epochs::ErrorClass::kRmaConflict,
                                               "lock of a target whose window is exposed by its MPI_Win_post",
                                               "lock it after the target's MPI_Win_wait",
                                               "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};
constexpr epochs::Violation kOperationWhilePosted{
    epochs::ErrorClass::kRmaConflict,
    "operation under a lock_all on a target whose window is exposed by its MPI_Win_post",
    "access it before that post or after the target's MPI_Win_wait", "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};

}  // namespace

template <std::size_t kCount>
std::array<std::uint32_t, kCount> Window::claim_wake_words() {
  std::array<std::uint32_t, kCount> words{};
  const auto claim = [&] {
    const auto held = guard();
    std::uint32_t in_use = wake_words_in_use_;
    for (std::uint32_t& word : words) {
      word = static_cast<std::uint32_t>(std::countr_one(in_use));
      if (word >= epochs::ControlBlock::kWakeWords) return false;
      in_use |= 1U << word;
    }
    wake_words_in_use_ = in_use;
    return true;
  };
  wait_until(space_->wake_event(), claim);
  return words;
}

void Window::release_wake_words(std::span<const std::uint32_t> words) {
  const auto held = guard();
  for (const std::uint32_t word : words) wake_words_in_use_ &= ~(1U << word);
}

template <class Lock>
Status Window::acquire(int rank, LockType type, epochs::LockToken& token, bool& saw_exposure,
                       std::optional<std::uint64_t> before, epochs::LockOf of) {
  const auto words = claim_wake_words<1>();
  using Acquire = epochs::AcquireLock<ControlMemory, Lock>;
  const int self = space_->rank();
  Acquire acquire = before ? Acquire(control_, self, rank, type, words[0], *before)
                           : Acquire(control_, self, rank, type, words[0], of);
  Status status = run(space_->wake_event(), acquire);
  if (status) {
    token = acquire.token();
    saw_exposure = acquire.saw_exposure();
  } else if (acquire.held()) {
    // What it had to do for others has failed; it must not keep them out as well.
    epochs::ReleaseLock<ControlMemory, Lock> release(control_, rank, type, acquire.token(), of);
    (void)run(space_->wake_event(), release);
  }
  // An acquisition that has failed in a queue may still be woken by its word: then the word is not used again.
  if (status || acquire.held() || !acquire.has_ticket()) release_wake_words(words);
  return status;
}

Outcome Window::acquire_of(int rank, LockType type, epochs::LockToken& token, std::optional<std::uint64_t> before) {
  bool saw_exposure = false;
  bool holds_global_lock = needs_global_lock(type);
  Status status = needs_global_lock(type) && enter_global_lock()
                      ? acquire_with_global_lock(rank, token, saw_exposure, holds_global_lock)
                      : acquire<epochs::TargetLock>(rank, type, token, saw_exposure, before);
  if (status && !saw_exposure) return {};
  if (status) status = release(rank, type, token);
  if (holds_global_lock) {
    if (const auto global_lock_token = leave_global_lock()) {
      Status left = release_global_lock(type, *global_lock_token);
      if (status) status = std::move(left);
    }
  }
  return status ? Outcome(kPostedWhileLocked) : Outcome(status);
}

bool Window::enter_global_lock() {
  bool first = false;
  const auto claim = [&] {
    const auto held = guard();
    if (entering_global_lock_) return false;
    first = global_lock_users_++ == 0;
    entering_global_lock_ = first;
    return true;
  };
  wait_until(space_->wake_event(), claim);
  return first;
}

Status Window::acquire_with_global_lock(int rank, epochs::LockToken& token, bool& saw_exposure,
                                        bool& holds_global_lock) {
  const auto words = claim_wake_words<2>();
  epochs::AcquireWithGlobalLock<ControlMemory> acquire(control_, space_->rank(), rank, global_lock_home_, words[0],
                                                       words[1]);
  Status status = run(space_->wake_event(), acquire);
  bool over = true;
  if (status) {
    token = acquire.token();
    saw_exposure = acquire.saw_exposure();
  } else {
    over = end_failed_acquisition(acquire);
  }
  // Somebody may still write to the words of one that is not over.
  if (over) release_wake_words(words);
  const auto held = guard();
  holds_global_lock = status || acquire.global_lock_held();
  if (holds_global_lock) {
    global_lock_token_ = acquire.global_lock_token();
  } else {
    global_lock_users_ = 0;  // the others come when this one has entered
  }
  entering_global_lock_ = false;
  return status;
}

bool Window::end_failed_acquisition(epochs::AcquireWithGlobalLock<ControlMemory>& acquire) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::seconds patience(Process::instance().settings().value()->peer_timeout);
  const Clock::time_point until = Clock::now() + patience;
  bool over = false;
  wait_until(space_->wake_event(), [&] {
    over = acquire.advance_after_failure();
    return over || (patience.count() > 0 && Clock::now() >= until);
  });
  if (!over) {
    log(LogLevel::kError,
        "a lock that failed cannot be taken back, as those in front of it hold theirs for {} s; locks of this window "
        "may wait for ever",
        patience.count());
  }
  return over;
}

Status Window::release(int rank, LockType type, epochs::LockToken token) {
  epochs::ReleaseLock<ControlMemory> release(control_, rank, type, token);
  return run(space_->wake_event(), release);
}

std::optional<epochs::LockToken> Window::leave_global_lock_if_alone() {
  const auto held = guard();
  if (global_lock_users_ != 1) return {};
  global_lock_users_ = 0;
  return global_lock_token_;
}

std::optional<epochs::LockToken> Window::leave_global_lock() {
  const auto held = guard();
  return --global_lock_users_ == 0 ? std::optional(global_lock_token_) : std::nullopt;
}

Status Window::release_global_lock(LockType type, epochs::LockToken token) {
  epochs::ReleaseLock<ControlMemory, epochs::GlobalLock> release(control_, global_lock_home_, type, token);
  return run(space_->wake_event(), release);
}

bool Window::may_defer(const Held& lock) const {
  // A trace shows where a program waits: at the lock.
  return lock.taken && !threaded_ && !needs_global_lock(lock.type) && strict_ == nullptr &&
         Trace::active() == nullptr && space_->may_defer_lock(lock.rank);
}

Outcome Window::acquire_deferred_lock() {
  deferring_ = nullptr;
  Held& lock = held_.back();
  Outcome taken =
      space_->acquire_deferred_lock(lock.rank, [&] { return acquire_of(lock.rank, lock.type, lock.token); });
  lock.plain = lock.token.how() == epochs::LockToken::kPlain;
  if (taken) return taken;
  // Whoever is told may have called for another target, or another window.
  Fault fault = taken.fault();
  if (fault.target == Fault::kNoTarget) fault.target = lock.rank;
  epoch_.lock_refused(lock.rank);
  held_.pop_back();
  return fault;
}

Outcome Window::unlock_deferred(Held& lock, bool& over) {
  using epochs::LockWord, epochs::TargetLock;
  deferring_ = nullptr;
  const auto step = [](std::uint64_t adds, std::uint64_t stops) {
    return ControlStep{ControlCall::kFetchAdd, {}, TargetLock::kWord, adds, stops};
  };
  LockedResult locked_result;
  over = true;
  Status done = space_->execute_locked(lock.rank, step(LockWord::arrive(lock.type), LockWord::contenders(lock.type)),
                                       step(LockWord::depart(lock.type), 0), locked_result);
  if (!done) return done;
  if (!locked_result.stopped) {
    lock.token = epochs::LockToken(LockWord::ticket(locked_result.acquire_step));
    return TargetLock::nobody_waits(locked_result.release_step, lock.type) ? Status()
                                                                           : hand_off(lock, locked_result.release_step);
  }
  if (Outcome o = acquire_of(lock.rank, lock.type, lock.token, locked_result.acquire_step); !o) return o;
  space_->coalesce_again(lock.rank, std::move(locked_result.list));
  over = false;
  return {};
}

// A lock that the epoch knows of already: as one that is waited for, or, where its ticket was taken (`before`), as
// held.
Outcome Window::keep_lock(Held lock, std::optional<std::uint64_t> before) {
  if (!before && may_defer(lock)) {
    deferring_ = this;
    held_.push_back(lock);
    epoch_.lock_acquired(lock.rank);  // for the rules; there is one thread
    const auto take = [this]() -> Status {
      Outcome taken = acquire_deferred_lock();
      if (taken) return {};
      const Fault& fault = taken.fault();
      return Error{fault.error_class == MPI_ERR_RMA_CONFLICT ? ErrorKind::kConflict : ErrorKind::kPeer, fault.text,
                   fault.target};
    };
    space_->defer_lock(lock.rank, take);
    return {};
  }
  if (lock.taken) {
    if (Outcome o = acquire_of(lock.rank, lock.type, lock.token, before); !o) {
      const auto held = guard();
      epoch_.lock_refused(lock.rank);
      return o;
    }
    lock.plain = lock.token.how() == epochs::LockToken::kPlain;
    // Of a global lock elsewhere the release is not ordered behind the data: nothing would be gained.
    const bool global_lock = needs_global_lock(lock.type);
    const bool near = global_lock_home_ == lock.rank || global_lock_home_ == space_->rank();
    if (!global_lock || near) space_->expect_release(lock.rank);
  }
  const auto held = guard();
  held_.push_back(lock);
  if (!before) epoch_.lock_acquired(lock.rank);
  return {};
}

// A lock that was left while others wait: `before` was in its word.
Status Window::hand_off(const Held& lock, std::uint64_t before) {
  epochs::ReleaseLock<ControlMemory> release(control_, lock.rank, lock.type, lock.token, before);
  return run(space_->wake_event(), release);
}

Status Window::hand_off_lock(std::uint64_t before) {
  const Held lock = held_.back();
  end_fast_lock();
  look_after_runtime();
  return hand_off(lock, before);
}

Outcome Window::lock_contended(int lock_type, int rank, std::uint64_t before) {
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  return keep_lock({rank, type, true, true, false, epochs::LockToken(epochs::LockWord::ticket(before))}, before);
}

Outcome Window::lock(int lock_type, int rank, int assert) {
  return counted([&] { return do_lock(lock_type, rank, assert); },
                 [&](const WindowStatistics::Moment& begun) {
                   if (rank == MPI_PROC_NULL) return;
                   statistics_->locked(
                       rank, lock_type == MPI_LOCK_SHARED ? EpochKind::kLockShared : EpochKind::kLockExclusive, begun);
                 });
}

Outcome Window::do_lock(int lock_type, int rank, int assert) {
  std::uint64_t before = 0;
  switch (fast_path_ ? try_lock(lock_type, rank, assert, before) : FastPath::kNotTaken) {
    case FastPath::kDone: return {};
    case FastPath::kContended: return lock_contended(lock_type, rank, before);
    case FastPath::kNotTaken: break;
  }
  return lock_slow(lock_type, rank, assert);
}

Outcome Window::do_unlock(int rank) {
  std::uint64_t before = 0;
  switch (fast_path_ ? try_unlock(rank, before) : FastPath::kNotTaken) {
    case FastPath::kDone: return {};
    case FastPath::kContended: return hand_off_lock(before);
    case FastPath::kNotTaken: break;
  }
  return unlock_slow(rank);
}

Outcome Window::unlock(int rank) {
  if (statistics_ == nullptr || rank == MPI_PROC_NULL) return do_unlock(rank);
  std::optional<LockType> type;
  {
    const auto held = guard();
    type = epoch_.locked(rank);
  }
  const WindowStatistics::Moment begun = WindowStatistics::begin_untimed();
  Outcome outcome = do_unlock(rank);
  if (outcome && type) {
    statistics_->unlocked(rank, *type == LockType::kShared ? EpochKind::kLockShared : EpochKind::kLockExclusive, begun);
  }
  return outcome;
}

Outcome Window::lock_all(int assert) {
  return counted([&] { return do_lock_all(assert); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->locked_all(begun); });
}

Outcome Window::unlock_all() {
  return counted([&] { return do_unlock_all(); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->unlocked_all(begun); });
}

Outcome Window::flush(int rank) {
  return counted([&] { return do_flush(rank); },
                 [&](const WindowStatistics::Moment& begun) {
                   if (rank != MPI_PROC_NULL) statistics_->flushed(rank, begun);
                 });
}

Outcome Window::flush_all() {
  return counted([&] { return do_flush_all(); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->flushed(-1, begun); });
}

Outcome Window::lock_slow(int lock_type, int rank, int assert) {
  if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
    return Fault{
        MPI_ERR_LOCKTYPE,
        fmt::format("{} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE (MPI 4.0 section 12.5.3)", lock_type)};
  }
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  if (Outcome o = acquire_deferred(); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_lock(rank, type)) return v;
  }
  return keep_lock({rank, type, (assert & MPI_MODE_NOCHECK) == 0, false, false, {}}, {});
}

Outcome Window::unlock_slow(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  Held lock;
  bool deferred = false;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock(rank)) return v;
    // The last one taken is mostly the first one given back.
    const auto found = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& h) { return h.rank == rank; });
    lock = *found;
    deferred = deferring_ == this && found == held_.rbegin();
    held_.erase(std::next(found).base());
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed(rank, lock.type == LockType::kExclusive);
  if (!lock.taken) return first_of(space_->flush(rank), std::move(checked));
  if (deferred) {
    bool over = false;
    if (Outcome o = unlock_deferred(lock, over); over) return first_of(std::move(o), space_->flush(rank));
  }
  // The data must take effect before the releases do; this waits for what they would overtake.
  const bool global_lock = needs_global_lock(lock.type);
  auto global_lock_token = global_lock ? leave_global_lock_if_alone() : std::nullopt;
  const bool global_lock_here = global_lock_home_ == space_->rank();
  const bool global_lock_elsewhere = global_lock_token && !global_lock_here && global_lock_home_ != rank;
  const bool global_lock_with_lock = global_lock_token && !global_lock_here;
  Status first = global_lock_elsewhere ? space_->flush(rank) : space_->order_before_release(rank);
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  if (global_lock_with_lock) {
    epochs::ReleaseWithGlobalLock<ControlMemory> both(control_, rank, lock.token, global_lock_home_,
                                                      *global_lock_token);
    keep(run(space_->wake_event(), both));
  } else {
    keep(release(rank, lock.type, lock.token));
  }
  keep(space_->flush(rank));
  // A global lock at this rank: nothing orders its release behind the data but their completion. And while other
  // threads are under the global lock, whoever of them leaves last opens it for the data of all.
  if (global_lock && !global_lock_token) global_lock_token = leave_global_lock();
  if (global_lock_token && !global_lock_with_lock) keep(release_global_lock(lock.type, *global_lock_token));
  return first_of(first, std::move(checked));
}

// By the global lock, or every rank's lock in the order of ranks; exposures do not matter (exposure.hpp). Taking each
// lock at the first operation on its target would cost less than all, but deadlocks: of two such epochs that use the
// targets in different orders, each may wait behind a writer that waits for the other. Loads and stores on the own
// window are covered as well.
Outcome Window::do_lock_all(int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (Outcome o = acquire_deferred(); !o) return o;
  const bool unchecked = (assert & MPI_MODE_NOCHECK) != 0;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_lock_all()) return v;
    lock_all_unchecked_ = unchecked;
  }
  Status taken = unchecked ? Status() : acquire_all();
  const auto held = guard();
  if (taken) {
    epoch_.lock_all_acquired();
  } else {
    epoch_.lock_all_refused();
  }
  return taken;
}

// The lock words count lock_alls apart, but not the own one: this process knows of it, and does not post meanwhile.
epochs::LockOf Window::by_lock_all(int rank) const {
  return rank == space_->rank() ? epochs::LockOf::kTarget : epochs::LockOf::kAll;
}

Status Window::acquire_all() {
  bool saw_exposure = false;
  if (global_lock_home_ != kNoGlobalLock) {
    epochs::LockToken token;
    Status passed = acquire<epochs::GlobalLock>(global_lock_home_, LockType::kShared, token, saw_exposure);
    const auto held = guard();
    global_lock_token_ = token;
    return passed;
  }
  // There it is once, however many threads it has: the last one has to be gone.
  const auto gone = [&] {
    const auto held = guard();
    return !std::exchange(lock_all_counted_, true);
  };
  wait_until(space_->wake_event(), gone);
  const std::span tokens(lock_all_tokens_.data(), static_cast<std::size_t>(space_->ranks()));
  for (std::size_t target = 0; target < tokens.size(); ++target) {
    const int rank = static_cast<int>(target);
    Status taken =
        acquire<epochs::TargetLock>(rank, LockType::kShared, tokens[target], saw_exposure, {}, by_lock_all(rank));
    if (taken) continue;
    const Status released = release_shared(tokens.first(target));
    return taken;
  }
  return {};
}

Status Window::release_shared(std::span<const epochs::LockToken> tokens) {
  std::deque<epochs::ReleaseLock<ControlMemory>> releases;
  for (const epochs::LockToken token : tokens) {
    const int rank = static_cast<int>(releases.size());
    releases.emplace_back(control_, rank, LockType::kShared, token, by_lock_all(rank));
  }
  Status first;
  for (auto& release : releases) {
    if (Status status = run(space_->wake_event(), release); !status && first) first = std::move(status);
  }
  const auto held = guard();
  lock_all_counted_ = false;
  return first;
}

Outcome Window::check_not_exposed(int rank) {
  epochs::LookForExposure<ControlMemory> look(control_, rank);
  const Status looked = run(space_->wake_event(), look);
  return looked && look.exposed() ? Outcome(kOperationWhilePosted) : Outcome(looked);
}

Outcome Window::do_unlock_all() {
  bool unchecked = false;
  epochs::LockToken global_lock_token;
  std::array<epochs::LockToken, kMostRanksWithoutGlobalLock> tokens;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock_all()) return v;
    unchecked = lock_all_unchecked_;
    global_lock_token = global_lock_token_;
    tokens = lock_all_tokens_;
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed_all();
  Status completed = space_->flush_all();
  if (unchecked) return first_of(completed, std::move(checked));
  Status released = global_lock_home_ != kNoGlobalLock
                        ? release_global_lock(LockType::kShared, global_lock_token)
                        : release_shared(std::span(tokens).first(static_cast<std::size_t>(space_->ranks())));
  return first_of(first_of(completed, released), std::move(checked));
}

Outcome Window::do_flush(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  bool alone = false;
  if (strict_) [[unlikely]] {
    const auto held = guard();
    alone = epoch_.locked(rank) == LockType::kExclusive;
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed(rank, alone);
  return first_of(space_->flush(rank), std::move(checked));
}

Outcome Window::do_flush_all() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed_all();
  return first_of(space_->flush_all(), std::move(checked));
}

Outcome Window::flush_local_strictly(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  Outcome checked = strict_->locally_completed(rank);
  return first_of(space_->flush(rank), std::move(checked));
}

Outcome Window::flush_local_all_strictly() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  Outcome checked = strict_->locally_completed_all();
  return first_of(space_->flush_all(), std::move(checked));
}

Outcome Window::sync() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.sync()) return v;
  }
  // Programs poll with MPI_Win_sync: let what they wait for arrive.
  look_after_runtime();
  Process::instance().poll();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

}  // namespace farside::pmpi
