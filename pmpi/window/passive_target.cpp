// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/passive_target.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "pmpi/window/wait_reports.hpp"
#include "transport/base/log.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/trace.hpp"

namespace farside::pmpi {
namespace {

using epochs::ControlBlock, epochs::HeldLock, epochs::LockTarget, epochs::LockType, epochs::UnlockTarget;

constexpr epochs::Violation kPostedWhileLocked = locked_and_exposed(
    "lock of a target whose window is exposed by its MPI_Win_post", "lock it after the target's MPI_Win_wait");

Error out_of_wake_words() {
  return {ErrorKind::kPeer,
          "locks of this window that failed have left their places in queues, and this process cannot wait for another "
          "lock; free the window"};
}

}  // namespace

Status PassiveTarget::run_to_end(auto& protocol, int peer) {
  constexpr bool kMayWait = requires { protocol.awaited(); };
  const std::chrono::milliseconds timeout = std::chrono::seconds(Process::instance().settings().value()->peer_timeout);
  const auto pause = timeout / Timing::kLooksForDead;
  Status first;
  std::optional<Clock::time_point> until;  // after a failure: of waiting for others
  LostLocks::Look look{Clock::now() + pause};
  for (bool over = false;;) {
    wait_until(window_.space->words().wake_event(), [&] {
      over = protocol.advance();
      while (ControlMemory::Operation* failed = over ? nullptr : protocol.failed_operation()) {
        Status status = failed->take_error();
        if (!first) continue;
        first = std::move(status);
        until = Clock::now() + timeout;
      }
      return over ||
             (kMayWait && timeout.count() > 0 && Clock::now() >= std::min(until.value_or(look.next), look.next));
    });
    if (over) return first;
    if constexpr (kMayWait) {
      const bool expired = until && Clock::now() >= *until;
      look.next = Clock::now() + pause;
      if (expired) until = look.next;
      const std::optional<epochs::AwaitedLock> lock = protocol.awaited();
      if (!lock) continue;
      // Without memory for it, the next look may find the same. The protocol must not be left halfway.
      std::optional<Error> lost;
      if (!expired) (void)without_bad_alloc([&] { lost = window_.lost_locks.find(*lock, look); });
      if (expired) {
        log(LogLevel::kError,
            "a lock of rank {} that failed cannot be taken out of its queue, or of that of the global lock at rank {}: "
            "others hold theirs for more than FARSIDE_PEER_TIMEOUT; locks of this window may wait for ever",
            peer, window_.locks.home());
      } else if (lost) {
        if (first) first = without_bad_alloc([&] { return window_.lost_locks.declare(*lock, protocol.type(), *lost); });
      } else {
        continue;
      }
      until.reset();
      protocol.stop_waiting();
    }
  }
}

Status PassiveTarget::acquire(HeldLock& lock, const std::optional<std::uint64_t>& taken) {
  const bool carried = window_.report_broken != nullptr;
  const bool with_global_lock = window_.locks.needs_global_lock(lock.type);
  LockTarget acquire(window_.control, window_.locks, lock.target, lock.type, taken, carried, near_place(lock));
  const auto reason =
      wait_reason(window_, [&](WaitReports& reports) { return reports.awaited_lock(lock.target, lock.type); });
  Status status = run_to_end(acquire, lock.target);
  if (status && !acquire.ok() && with_global_lock && !window_.locks.needs_global_lock(lock.type))
    return this->acquire(lock);
  lock.token = acquire.token();
  lock.near = acquire.near();
  if (lock.near > 1) Process::instance().statistics().add(RouteKind::kMapped, Counted::kNearHandOff, 0);
  if (acquire.out_of_wake_words()) return out_of_wake_words();
  if (!acquire.saw_exposure() || !status) return status;
  const Fault posted = fault_of(kPostedWhileLocked);
  if (!carried) return posted;
  const auto held = window_.guard();
  window_.warn(posted);
  return {};
}

epochs::NearPlace PassiveTarget::near_place(const HeldLock& lock) const {
  if (lock.type != LockType::kExclusive || window_.near_hand_offs == 0) return {};
  const int home = window_.space->words().near_home(lock.target);
  return home < 0 ? epochs::NearPlace{} : epochs::NearPlace{home, window_.near_hand_offs};
}

bool PassiveTarget::may_defer(const HeldLock& lock) const {
  // With a trace the lock is acquired at once, so that the trace shows the wait in MPI_Win_lock.
  return lock.needs_release && !window_.threaded() && !window_.locks.needs_global_lock(lock.type) &&
         window_.strict == nullptr && Trace::active() == nullptr &&
         window_.space->deferred_locks(lock.target) != nullptr;
}

Status PassiveTarget::acquire_deferred_lock() {
  library().deferring = nullptr;
  window_.locks.resume_deferred();
  HeldLock& lock = window_.locks.locks().back();
  Status acquired = window_.space->deferred_locks(lock.target)->take(lock.target, [&] { return acquire(lock); });
  if (acquired) return acquired;
  // The call that reports the failure may be for another target or window.
  Error error = acquired.error();
  if (error.rank == Error::kNoRank) error.rank = lock.target;
  window_.epoch.refused(epochs::Call::kLock, lock.target);
  if (error.kind == ErrorKind::kPeer) window_.failed_deferral = lock.target;
  window_.locks.locks().pop_back();
  return error;
}

Status PassiveTarget::unlock_deferred(HeldLock& lock, bool& over) {
  using epochs::LockWord, epochs::kTargetLock;
  const auto step = [](std::uint64_t adds, std::uint64_t stops) {
    return ControlStep{ControlCall::kFetchAdd, {}, kTargetLock.word(), adds, stops};
  };
  LockedResult locked_result;
  over = true;
  FabricControl& deferred = *window_.space->deferred_locks(lock.target);
  Status done = deferred.execute(lock.target, step(LockWord::arrive(lock.type), LockWord::contenders(lock.type)),
                                 step(LockWord::depart(lock.type), 0), locked_result);
  if (!done) return done;
  const auto [acquired_from, released_from] = locked_result.words;
  if (!locked_result.stopped) {
    lock.token = epochs::LockToken(LockWord::ticket(acquired_from));
    return kTargetLock.nobody_waits(released_from, lock.type) ? Status() : hand_off(lock, released_from);
  }
  if (Status acquired = acquire(lock, acquired_from); !acquired) return acquired;
  deferred.queue_again(lock.target, std::move(locked_result.list));
  over = false;
  return {};
}

// Completes MPI_Win_lock. Precondition: the lock is awaited in the epoch state.
Status PassiveTarget::acquire_or_defer(HeldLock lock) {
  if (may_defer(lock)) {
    // It outlives this call, and so this view.
    const auto take = [&window = window_] { return PassiveTarget(window).acquire_deferred_lock(); };
    // The first contact with the target may fail.
    if (Status deferred =
            without_bad_alloc([&] { return window_.space->deferred_locks(lock.target)->defer(lock.target, take); });
        !deferred) {
      window_.epoch.refused(epochs::Call::kLock, lock.target);
      return deferred;
    }
    library().deferring = &window_;
    window_.locks.defer(lock.target, lock.type);
    window_.epoch.opened(epochs::Call::kLock,
                         lock.target);  // the rules treat a deferred lock as held; there is one thread
    return {};
  }
  if (lock.needs_release) {
    if (Status acquired = without_bad_alloc([&] { return acquire(lock); }); !acquired) {
      const auto held = window_.guard();
      window_.epoch.refused(epochs::Call::kLock, lock.target);
      return acquired;
    }
    // The release of a global lock at a third rank is not ordered behind the data, so nothing would be gained.
    const bool near = window_.locks.home() == lock.target || window_.locks.home() == window_.space->rank();
    if (!window_.locks.needs_global_lock(lock.type) || near)
      window_.space->route(lock.target).expect_release(lock.target);
  }
  const auto held = window_.guard();
  window_.locks.locks().push_back(lock);
  window_.epoch.opened(epochs::Call::kLock, lock.target);
  return {};
}

Status PassiveTarget::hand_off(const HeldLock& lock, std::uint64_t before) {
  epochs::ReleaseLock<ControlMemory> release(window_.control, lock.target, lock.type, lock.token, before);
  Status released = run(window_.space->words().wake_event(), release);
  return released ? window_.control.take_unawaited_error() : std::move(released);
}

Status PassiveTarget::lock(int lock_type, int rank, int assert) {
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  const auto attempt = [&] {
    if (window_.lock_stripes != nullptr) {
      if (lock_in_stripe(lock_type, rank, assert)) return FastPath::kDone;
      // Otherwise the epoch or another thread is in the way, or the arguments are.
      std::uint64_t* const word = assert == 0 && !window_.locks.needs_global_lock(type) ? lock_word(rank) : nullptr;
      const bool free = word == nullptr || epochs::kTargetLock.holds_at_once(ControlWord::look(*word), type);
      return free ? FastPath::kNotTaken : FastPath::kContended;
    }
    const auto held = window_.guard();
    return try_lock(lock_type, rank, assert);
  };
  FastPath taken = window_.strict == nullptr ? attempt() : FastPath::kNotTaken;
  if (taken == FastPath::kContended) taken = acquire_while_free(type, rank, attempt);
  return taken == FastPath::kDone ? Status() : lock_slow(lock_type, rank, assert);
}

// If ranks outnumber cores, a lock that passes in ticket order mostly goes to a sleeping rank, at the cost of a context
// switch. So a rank first tries to acquire the lock without a ticket. A rank with a ticket is never overtaken.
template <class Attempt>
FastPath PassiveTarget::acquire_while_free(LockType type, int rank, Attempt&& attempt) {
  using epochs::LockWord;
  std::uint64_t& word = *lock_word(rank);
  const std::uint64_t first = LockWord::ticket(ControlWord::look(word));
  Clock::time_point until{};
  for (Waiter waiter(Process::instance(), window_.space->words().wake_event()); !waiter.may_sleep();) {
    waiter.pause();
    const std::uint64_t now = ControlWord::look(word);
    if (epochs::kTargetLock.holds_at_once(now, type)) {
      if (const FastPath result = attempt(); result != FastPath::kContended) return result;
    }
    if (LockWord::exposed(now)) break;
    if (!waiter.has_yielded()) continue;
    if (LockWord::distance(LockWord::ticket(now), first) > Timing::kMostOvertakers) break;
    if (until == Clock::time_point{}) until = Clock::now() + Timing::kWithoutTicket;
    if (Clock::now() >= until) break;
  }
  return FastPath::kContended;
}

bool PassiveTarget::open_stripes(int rank) {
  if (window_.lock_stripes->is_open() || lock_word(rank) == nullptr) return false;
  const WindowLocks::Guard held = window_.locks.guard();
  // close_stripes() needs no memory.
  if (!window_.epoch.allows_fast(epochs::Call::kLock) || !window_.epoch.reserve_locks()) return false;
  window_.lock_stripes->open();
  return true;
}

Status PassiveTarget::unlock(int rank, HeldLock& lock) {
  std::uint64_t before = 0;
  const auto attempt = [&] {
    // With Fast::kReleases the entry point has tried the stripe already.
    if (window_.fast != Fast::kReleases) {
      if (const FastPath released = unlock_in_stripe(rank, lock, before); released != FastPath::kNotTaken)
        return released;
    }
    const auto held = window_.guard();
    return try_unlock(rank, lock, before);
  };
  const bool fast = window_.strict == nullptr && window_.complete_puts(rank);
  const FastPath released = fast ? attempt() : FastPath::kNotTaken;
  if (released == FastPath::kNotTaken) return unlock_slow(rank, lock);
  WindowState::progress_runtime();
  return released == FastPath::kDone ? Status() : hand_off(lock, before);
}

Status PassiveTarget::lock_slow(int lock_type, int rank, int assert) {
  if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
    return Fault{
        MPI_ERR_LOCKTYPE,
        fmt::format("{} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE (MPI 4.0 section 12.5.3)", lock_type)};
  }
  if (Status o = window_.check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (rank == MPI_PROC_NULL) return {};
  if (Status o = window_.check_rank(rank); !o) return o;
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  if (Status acquired = acquire_deferred(); !acquired) return acquired;
  if (Status lost = (assert& MPI_MODE_NOCHECK) != 0 ? Status() : window_.lost_locks.check(rank, type); !lost)
    return lost;
  {
    const auto held = window_.guard();
    // Room for this lock, before it is acquired.
    auto& locks = window_.locks.locks();
    if (window_.epoch.locks_begun() >= locks.capacity()) locks.reserve(2 * window_.epoch.locks_begun());
    if (const epochs::Violation v = window_.epoch.begin_lock(rank, type, window_.locks.type_of(rank)))
      return fault_of(v);
    if (!window_.epoch.awaits(rank)) return {};
  }
  return acquire_or_defer({.target = rank, .type = type, .needs_release = (assert& MPI_MODE_NOCHECK) == 0});
}

Status PassiveTarget::unlock_slow(int rank, HeldLock& lock) {
  if (rank == MPI_PROC_NULL) return {};
  if (Status o = window_.check_rank(rank); !o) return o;
  bool deferred = false, releases = false;
  {
    const auto held = window_.guard();
    const bool locked = window_.epoch.locked(rank);
    if (window_.failed_deferral == rank) {
      window_.failed_deferral = MPI_PROC_NULL;
      if (!locked) return {};
    }
    if (const epochs::Violation v = window_.epoch.unlock(rank)) return fault_of(v);
    releases = locked && !window_.epoch.locked(rank);
    deferred = window_.locks.has_deferred() && window_.locks.deferred().target == rank;
    if (releases) lock = window_.locks.take(rank);
  }
  if (!releases) return window_.space->route(rank).flush(rank);
  WindowState::progress_runtime();
  if (!lock.needs_release) return window_.space->route(rank).flush(rank);
  if (deferred) {
    library().deferring = nullptr;
    window_.locks.resume_deferred();
    bool over = false;
    if (Status unlocked = unlock_deferred(lock, over); over)
      return first_of(unlocked, window_.space->route(rank).flush(rank));
  }
  // The data must take effect before the releases, so this waits for operations that the releases would overtake.
  UnlockTarget unlock(window_.control, window_.locks, lock, near_place(lock));
  Status first = unlock.needs_complete_data() ? window_.space->route(rank).flush(rank)
                                              : window_.space->route(rank).order_before_release(rank);
  first.keep(run_to_end(unlock, rank));
  first.keep(window_.space->route(rank).flush(rank));
  unlock.data_complete();
  first.keep(run_to_end(unlock, rank));
  first.keep(window_.control.take_unawaited_error());
  return first;
}

// The lock_all covers loads from and stores to the own window, too.
Status PassiveTarget::lock_all(int assert) {
  if (Status o = window_.check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (Status acquired = acquire_deferred(); !acquired) return acquired;
  const bool unchecked = (assert& MPI_MODE_NOCHECK) != 0;
  if (Status lost = unchecked ? Status() : window_.lost_locks.check(-1, LockType::kShared); !lost) return lost;
  {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.begin_lock_all()) return fault_of(v);
    if (window_.epoch.access() != epochs::Access::kLockingAll) return {};
    window_.lock_all_unchecked = unchecked;
  }
  const auto acquire = [&]() -> Status {
    epochs::LockAll all(window_.control, window_.locks);
    const auto reason =
        wait_reason(window_, [&](WaitReports& reports) { return reports.awaited_lock_all(all.awaited_rank()); });
    Status ended = run_to_end(all);
    return all.out_of_wake_words() ? Status(out_of_wake_words()) : std::move(ended);
  };
  const Status acquired = unchecked ? Status() : without_bad_alloc(acquire);
  const auto held = window_.guard();
  acquired ? window_.epoch.opened(epochs::Call::kLockAll) : window_.epoch.refused(epochs::Call::kLockAll);
  return acquired;
}

Status PassiveTarget::unlock_all() {
  bool unchecked = false, releases = false;
  {
    const auto held = window_.guard();
    const bool locked = window_.epoch.access() == epochs::Access::kLockedAll;
    if (const epochs::Violation v = window_.epoch.unlock_all()) return fault_of(v);
    releases = locked && window_.epoch.access() != epochs::Access::kLockedAll;
    unchecked = window_.lock_all_unchecked;
  }
  if (!releases) return window_.space->flush_all();
  WindowState::progress_runtime();
  Status completed = window_.space->flush_all();
  if (unchecked) return completed;
  epochs::UnlockAll all(window_.control, window_.locks);
  completed.keep(run_to_end(all));
  completed.keep(window_.control.take_unawaited_error());
  return completed;
}

Status PassiveTarget::flush(int rank, bool locally) {
  if (rank == MPI_PROC_NULL) return {};
  if (Status o = window_.check_rank(rank); !o) return o;
  const auto ask = [&](auto& epoch) { return epoch.flush(rank); };
  if (Status o = window_.holds_in_stripe(rank) ? Status() : window_.allow(ask); !o) return o;
  WindowState::progress_runtime();
  return window_.space->route(rank).flush(rank, locally);
}

Status PassiveTarget::flush_all(bool locally) {
  if (Status o = window_.allow([&](epochs::EpochState& epoch) { return epoch.flush_all(); }); !o) return o;
  WindowState::progress_runtime();
  return window_.space->flush_all(locally);
}

Status PassiveTarget::sync() {
  if (Status o = window_.allow([&](epochs::EpochState& epoch) { return epoch.sync(); }); !o) return o;
  // Programs poll with MPI_Win_sync, so this makes progress.
  WindowState::progress_runtime();
  Process::instance().poll();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

}  // namespace farside::pmpi
