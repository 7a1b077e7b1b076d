// SPDX-License-Identifier: BSD-3-Clause
// Passive target synchronization of a window (MPI 4.0 sections 12.5.3 and 12.5.4): locks, the gate, flushes.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <iterator>
#include <utility>

#include "epochs/exposure.hpp"
#include "epochs/lock.hpp"
#include "pmpi/synchronization.hpp"
#include "pmpi/window.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

using epochs::LockType;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at once.
constexpr epochs::Violation kPostedWhileLocked{epochs::ErrorClass::kRmaConflict,
                                               "lock of a target whose window is exposed by its MPI_Win_post",
                                               "lock it after the target's MPI_Win_wait",
                                               "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};
constexpr epochs::Violation kOperationWhilePosted{epochs::ErrorClass::kRmaConflict,
                                                  "operation under a lock_all on a target whose window is exposed by its MPI_Win_post",
                                                  "access it before that post or after the target's MPI_Win_wait",
                                                  "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};

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
  wait_until(space_->bell(), claim);
  return words;
}

void Window::return_wake_words(std::span<const std::uint32_t> words) {
  const auto held = guard();
  for (const std::uint32_t word : words) wake_words_in_use_ &= ~(1U << word);
}

template <class Lock>
Status Window::acquire(int rank, LockType type, epochs::Hold& hold, bool& saw_exposure, std::optional<std::uint64_t> before,
                       epochs::LockOf of) {
  const auto words = claim_wake_words<1>();
  using Acquire = epochs::AcquireLock<ControlMemory, Lock>;
  const int self = space_->rank();
  Acquire acquire =
      before ? Acquire(control_, self, rank, type, words[0], *before) : Acquire(control_, self, rank, type, words[0], of);
  Status status = run(space_->bell(), acquire);
  if (status) {
    hold = acquire.hold();
    saw_exposure = acquire.saw_exposure();
  } else if (acquire.held()) {
    // What it had to do for others has failed; it must not keep them out as well.
    epochs::ReleaseLock<ControlMemory, Lock> release(control_, rank, type, acquire.hold(), of);
    (void)run(space_->bell(), release);
  }
  // An acquisition that has failed in a queue may still be woken by its word: then the word is not used again.
  if (status || acquire.held() || !acquire.drawn()) return_wake_words(words);
  return status;
}

Outcome Window::acquire_of(int rank, LockType type, epochs::Hold& hold, std::optional<std::uint64_t> before) {
  bool saw_exposure = false;
  bool behind_gate = passes_gate(type);
  Status status = passes_gate(type) && come_to_gate()
                      ? acquire_with_gate(rank, hold, saw_exposure, behind_gate)
                      : acquire<epochs::TargetLock>(rank, type, hold, saw_exposure, before);
  if (status && !saw_exposure) return {};
  if (status) status = release(rank, type, hold);
  if (behind_gate) {
    if (const auto gate_hold = leave_gate()) {
      Status left = release_gate(type, *gate_hold);
      if (status) status = std::move(left);
    }
  }
  return status ? Outcome(kPostedWhileLocked) : Outcome(status);
}

bool Window::come_to_gate() {
  bool first = false;
  const auto claim = [&] {
    const auto held = guard();
    if (entering_gate_) return false;
    first = behind_gate_++ == 0;
    entering_gate_ = first;
    return true;
  };
  wait_until(space_->bell(), claim);
  return first;
}

Status Window::acquire_with_gate(int rank, epochs::Hold& hold, bool& saw_exposure, bool& behind_gate) {
  const auto words = claim_wake_words<2>();
  epochs::AcquireLockAndGate<ControlMemory> acquire(control_, space_->rank(), rank, gate_home_, words[0], words[1]);
  Status status = run(space_->bell(), acquire);
  bool over = true;
  if (status) {
    hold = acquire.hold();
    saw_exposure = acquire.saw_exposure();
  } else {
    over = end_failed_acquisition(acquire);
  }
  // Somebody may still write to the words of one that is not over.
  if (over) return_wake_words(words);
  const auto held = guard();
  behind_gate = status || acquire.gate_held();
  if (behind_gate) {
    gate_hold_ = acquire.gate_hold();
  } else {
    behind_gate_ = 0;  // the others come when this one has entered
  }
  entering_gate_ = false;
  return status;
}

bool Window::end_failed_acquisition(epochs::AcquireLockAndGate<ControlMemory>& acquire) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::seconds patience(Process::instance().settings().value()->peer_timeout);
  const Clock::time_point until = Clock::now() + patience;
  bool over = false;
  wait_until(space_->bell(), [&] {
    over = acquire.advance_after_failure();
    return over || (patience.count() > 0 && Clock::now() >= until);
  });
  if (!over) {
    log(LogLevel::kError, "a lock that failed cannot be taken back, as those in front of it hold theirs for {} s; locks of this window "
                          "may wait for ever", patience.count());
  }
  return over;
}

Status Window::release(int rank, LockType type, epochs::Hold hold) {
  epochs::ReleaseLock<ControlMemory> release(control_, rank, type, hold);
  return run(space_->bell(), release);
}

std::optional<epochs::Hold> Window::leave_gate_alone() {
  const auto held = guard();
  if (behind_gate_ != 1) return {};
  behind_gate_ = 0;
  return gate_hold_;
}

std::optional<epochs::Hold> Window::leave_gate() {
  const auto held = guard();
  return --behind_gate_ == 0 ? std::optional(gate_hold_) : std::nullopt;
}

Status Window::release_gate(LockType type, epochs::Hold hold) {
  epochs::ReleaseLock<ControlMemory, epochs::Gate> release(control_, gate_home_, type, hold);
  return run(space_->bell(), release);
}

bool Window::may_put_off(const Held& lock) const {
  // A trace shows where a program waits: at the lock.
  return lock.taken && !threaded_ && !passes_gate(lock.type) && strict_ == nullptr && Trace::active() == nullptr &&
         space_->may_put_off_lock(lock.rank);
}

Outcome Window::take_lock_put_off() {
  putting_off_ = nullptr;
  Held& lock = held_.back();
  Outcome taken = space_->take_lock_put_off(lock.rank, [&] { return acquire_of(lock.rank, lock.type, lock.hold); });
  lock.plain = lock.hold.how() == epochs::Hold::kPlain;
  if (taken) return taken;
  // Whoever is told may have called for another target, or another window.
  Fault fault = taken.fault();
  if (fault.target == Fault::kNoTarget) fault.target = lock.rank;
  epoch_.lock_refused(lock.rank);
  held_.pop_back();
  return fault;
}

Outcome Window::unlock_put_off(Held& lock, bool& over) {
  using epochs::LockWord, epochs::TargetLock;
  putting_off_ = nullptr;
  const auto step = [](std::uint64_t adds, std::uint64_t stops) {
    return ControlStep{ControlCall::kFetchAdd, {}, TargetLock::kWord, adds, stops};
  };
  Enclosed enclosed;
  over = true;
  Status done = space_->carry_out_enclosed(lock.rank, step(LockWord::come(lock.type), LockWord::in_the_way(lock.type)),
                                           step(LockWord::leave(lock.type), 0), enclosed);
  if (!done) return done;
  if (!enclosed.stopped) {
    lock.hold = epochs::Hold(LockWord::ticket(enclosed.opening));
    return TargetLock::nobody_waits(enclosed.closing, lock.type) ? Status() : pass_on(lock, enclosed.closing);
  }
  if (Outcome o = acquire_of(lock.rank, lock.type, lock.hold, enclosed.opening); !o) return o;
  space_->gather_again(lock.rank, std::move(enclosed.list));
  over = false;
  return {};
}

// A lock that the epoch knows of already: as one that is waited for, or, where its ticket was drawn (`before`), as held.
Outcome Window::keep_lock(Held lock, std::optional<std::uint64_t> before) {
  if (!before && may_put_off(lock)) {
    putting_off_ = this;
    held_.push_back(lock);
    epoch_.lock_acquired(lock.rank);  // for the rules; there is one thread
    const auto take = [this]() -> Status {
      Outcome taken = take_lock_put_off();
      if (taken) return {};
      const Fault& fault = taken.fault();
      return Error{fault.error_class == MPI_ERR_RMA_CONFLICT ? ErrorKind::kConflict : ErrorKind::kPeer, fault.text, fault.target};
    };
    space_->put_off_lock(lock.rank, take);
    return {};
  }
  if (lock.taken) {
    if (Outcome o = acquire_of(lock.rank, lock.type, lock.hold, before); !o) {
      const auto held = guard();
      epoch_.lock_refused(lock.rank);
      return o;
    }
    lock.plain = lock.hold.how() == epochs::Hold::kPlain;
    // Of a gate elsewhere the release is not ordered behind the data: nothing would be gained.
    const bool gate = passes_gate(lock.type);
    const bool near = gate_home_ == lock.rank || gate_home_ == space_->rank();
    if (!gate || near) space_->expect_release(lock.rank);
  }
  const auto held = guard();
  held_.push_back(lock);
  if (!before) epoch_.lock_acquired(lock.rank);
  return {};
}

// A lock that was left while others wait: `before` was in its word.
Status Window::pass_on(const Held& lock, std::uint64_t before) {
  epochs::ReleaseLock<ControlMemory> release(control_, lock.rank, lock.type, lock.hold, before);
  return run(space_->bell(), release);
}

Status Window::pass_lock_on(std::uint64_t before) {
  const Held lock = held_.back();
  end_direct_lock();
  look_after_runtime();
  return pass_on(lock, before);
}

Outcome Window::lock_in_turn(int lock_type, int rank, std::uint64_t before) {
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  return keep_lock({rank, type, true, true, false, epochs::Hold(epochs::LockWord::ticket(before))}, before);
}

Outcome Window::lock(int lock_type, int rank, int assert) {
  return accounted([&] { return lock_itself(lock_type, rank, assert); },
                   [&](const Account::Moment& begun) {
                     if (rank == MPI_PROC_NULL) return;
                     account_->locked(rank, lock_type == MPI_LOCK_SHARED ? EpochKind::kLockShared : EpochKind::kLockExclusive,
                                      begun);
                   });
}

Outcome Window::lock_itself(int lock_type, int rank, int assert) {
  std::uint64_t before = 0;
  switch (direct_ ? lock_direct(lock_type, rank, assert, before) : Direct::kNot) {
    case Direct::kDone: return {};
    case Direct::kContended: return lock_in_turn(lock_type, rank, before);
    case Direct::kNot: break;
  }
  return lock_anyhow(lock_type, rank, assert);
}

Outcome Window::unlock_itself(int rank) {
  std::uint64_t before = 0;
  switch (direct_ ? unlock_direct(rank, before) : Direct::kNot) {
    case Direct::kDone: return {};
    case Direct::kContended: return pass_lock_on(before);
    case Direct::kNot: break;
  }
  return unlock_anyhow(rank);
}

Outcome Window::unlock(int rank) {
  if (account_ == nullptr || rank == MPI_PROC_NULL) return unlock_itself(rank);
  std::optional<LockType> type;
  {
    const auto held = guard();
    type = epoch_.locked(rank);
  }
  const Account::Moment begun = Account::begin_untimed();
  Outcome outcome = unlock_itself(rank);
  if (outcome && type) {
    account_->unlocked(rank, *type == LockType::kShared ? EpochKind::kLockShared : EpochKind::kLockExclusive, begun);
  }
  return outcome;
}

Outcome Window::lock_all(int assert) {
  return accounted([&] { return lock_all_itself(assert); },
                   [&](const Account::Moment& begun) { account_->locked_all(begun); });
}

Outcome Window::unlock_all() {
  return accounted([&] { return unlock_all_itself(); },
                   [&](const Account::Moment& begun) { account_->unlocked_all(begun); });
}

Outcome Window::flush(int rank) {
  return accounted([&] { return flush_itself(rank); },
                   [&](const Account::Moment& begun) {
                     if (rank != MPI_PROC_NULL) account_->flushed(rank, begun);
                   });
}

Outcome Window::flush_all() {
  return accounted([&] { return flush_all_itself(); },
                   [&](const Account::Moment& begun) { account_->flushed(-1, begun); });
}

Outcome Window::lock_anyhow(int lock_type, int rank, int assert) {
  if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
    return Fault{MPI_ERR_LOCKTYPE, fmt::format("{} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE (MPI 4.0 section 12.5.3)",
                                               lock_type)};
  }
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  if (Outcome o = take_put_off(); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_lock(rank, type)) return v;
  }
  return keep_lock({rank, type, (assert & MPI_MODE_NOCHECK) == 0, false, false, {}}, {});
}

Outcome Window::unlock_anyhow(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  Held lock;
  bool put_off = false;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock(rank)) return v;
    // The last one taken is mostly the first one given back.
    const auto found = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& h) { return h.rank == rank; });
    lock = *found;
    put_off = putting_off_ == this && found == held_.rbegin();
    held_.erase(std::next(found).base());
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed(rank, lock.type == LockType::kExclusive);
  if (!lock.taken) return first_of(space_->flush(rank), std::move(checked));
  if (put_off) {
    bool over = false;
    if (Outcome o = unlock_put_off(lock, over); over) return first_of(std::move(o), space_->flush(rank));
  }
  // The data must take effect before the releases do; this waits for what they would overtake.
  const bool gate = passes_gate(lock.type);
  auto gate_hold = gate ? leave_gate_alone() : std::nullopt;
  const bool gate_here = gate_home_ == space_->rank();
  const bool gate_elsewhere = gate_hold && !gate_here && gate_home_ != rank;
  const bool gate_with_lock = gate_hold && !gate_here;
  Status first = gate_elsewhere ? space_->flush(rank) : space_->settle(rank);
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  if (gate_with_lock) {
    epochs::ReleaseLockAndGate<ControlMemory> both(control_, rank, lock.hold, gate_home_, *gate_hold);
    keep(run(space_->bell(), both));
  } else {
    keep(release(rank, lock.type, lock.hold));
  }
  keep(space_->flush(rank));
  // A gate at this rank: nothing orders its release behind the data but their completion. And while other threads are
  // behind the gate, whoever of them leaves last opens it for the data of all.
  if (gate && !gate_hold) gate_hold = leave_gate();
  if (gate_hold && !gate_with_lock) keep(release_gate(lock.type, *gate_hold));
  return first_of(first, std::move(checked));
}

// Through the gate, or every rank's lock in the order of ranks; exposures do not matter (exposure.hpp). Taking each lock at
// the first operation on its target would cost less than all, but deadlocks: of two such epochs that use the targets in
// different orders, each may wait behind a writer that waits for the other. Loads and stores on the own window are covered
// as well.
Outcome Window::lock_all_itself(int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (Outcome o = take_put_off(); !o) return o;
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
  if (gate_home_ != kNoGate) {
    epochs::Hold hold;
    Status passed = acquire<epochs::Gate>(gate_home_, LockType::kShared, hold, saw_exposure);
    const auto held = guard();
    gate_hold_ = hold;
    return passed;
  }
  // There it is once, however many threads it has: the last one has to be gone.
  const auto gone = [&] {
    const auto held = guard();
    return !std::exchange(lock_all_counted_, true);
  };
  wait_until(space_->bell(), gone);
  const std::span holds(lock_all_holds_.data(), static_cast<std::size_t>(space_->ranks()));
  for (std::size_t target = 0; target < holds.size(); ++target) {
    const int rank = static_cast<int>(target);
    Status taken = acquire<epochs::TargetLock>(rank, LockType::kShared, holds[target], saw_exposure, {}, by_lock_all(rank));
    if (taken) continue;
    const Status released = release_shared(holds.first(target));
    return taken;
  }
  return {};
}

Status Window::release_shared(std::span<const epochs::Hold> holds) {
  std::deque<epochs::ReleaseLock<ControlMemory>> releases;
  for (const epochs::Hold hold : holds) {
    const int rank = static_cast<int>(releases.size());
    releases.emplace_back(control_, rank, LockType::kShared, hold, by_lock_all(rank));
  }
  Status first;
  for (auto& release : releases) {
    if (Status status = run(space_->bell(), release); !status && first) first = std::move(status);
  }
  const auto held = guard();
  lock_all_counted_ = false;
  return first;
}

Outcome Window::check_not_exposed(int rank) {
  epochs::LookForExposure<ControlMemory> look(control_, rank);
  const Status looked = run(space_->bell(), look);
  return looked && look.exposed() ? Outcome(kOperationWhilePosted) : Outcome(looked);
}

Outcome Window::unlock_all_itself() {
  bool unchecked = false;
  epochs::Hold gate_hold;
  std::array<epochs::Hold, kMostRanksWithoutGate> holds;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock_all()) return v;
    unchecked = lock_all_unchecked_;
    gate_hold = gate_hold_;
    holds = lock_all_holds_;
  }
  look_after_runtime();
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed_all();
  Status completed = space_->flush_all();
  if (unchecked) return first_of(completed, std::move(checked));
  Status released = gate_home_ != kNoGate
                        ? release_gate(LockType::kShared, gate_hold)
                        : release_shared(std::span(holds).first(static_cast<std::size_t>(space_->ranks())));
  return first_of(first_of(completed, released), std::move(checked));
}

Outcome Window::flush_itself(int rank) {
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

Outcome Window::flush_all_itself() {
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
