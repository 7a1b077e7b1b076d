// SPDX-License-Identifier: BSD-3-Clause
// Passive target synchronization of a window (MPI 4.0 sections 12.5.3 and 12.5.4): locks, the global lock, flushes.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_all.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_target.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "pmpi/window/synchronization.hpp"
#include "pmpi/window/wait_reasons.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

using epochs::HeldLock, epochs::LockTarget, epochs::LockType, epochs::UnlockTarget;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at once.
constexpr epochs::Violation kPostedWhileLocked{
    epochs::ErrorClass::kRmaConflict, "lock of a target whose window is exposed by its MPI_Win_post",
    "lock it after the target's MPI_Win_wait", "MPI 4.0 section 12.5.3 (3.1: 11.5.3)", true};
constexpr epochs::Violation kOperationWhilePosted{
    epochs::ErrorClass::kRmaConflict,
    "operation under a lock_all on a target whose window is exposed by its MPI_Win_post",
    "access it before that post or after the target's MPI_Win_wait", "MPI 4.0 section 12.5.3 (3.1: 11.5.3)", true};

Error out_of_wake_words() {
  return {ErrorKind::kPeer,
          "locks of this window that failed have left their places in queues, and this process cannot wait for another "
          "lock; free the window"};
}

}  // namespace

// What a wait for a lock has seen of the lock when it last looked for dead ranks.
struct Window::LockLook {
  LongWait::Clock::time_point next;
  std::vector<std::optional<std::uint64_t>> seen = {};
};

// Whether an awaited lock is lost: a rank of the window has ended, no other rank is known to hold the lock alone, and
// nobody has departed since the last look.
std::optional<Error> Window::find_lost(const epochs::AwaitedLock& lock, LockLook& look) {
  using epochs::GlobalLock, epochs::LockWord, epochs::TargetLock;
  const bool global = lock.word == GlobalLock::kWord;
  std::vector<WordOf> words{{lock.rank, lock.word}};
  if (global) {
    for (const LockType type : {LockType::kShared, LockType::kExclusive})
      words.push_back({lock.rank, GlobalLock::drain_word(type)});
  } else {
    words.push_back({lock.rank, TargetLock::drain_word(LockType::kShared)});
  }
  auto now = read_words(words);
  // Arrivals do not count.
  if (now.front())
    now.front() = LockWord::ticket(*now.front()) - LockWord::readers(*now.front()) - LockWord::writers(*now.front());
  const std::vector<DeadRanks::Rank> dead = dead_ranks_.look(lock.rank);
  const bool moved = std::exchange(look.seen, now) != now;
  if (dead.empty() || moved) return {};
  for (const int holder : exclusive_holders(global ? -1 : lock.rank)) {
    if (std::ranges::find(dead, holder, &DeadRanks::Rank::rank) == dead.end()) return {};
  }
  std::string ended;
  for (const DeadRanks::Rank& each : dead)
    ended += fmt::format("{}rank {}{}", ended.empty() ? "" : ", ", each.rank, each.how);
  return Error{ErrorKind::kPeer,
               fmt::format("{} is lost: {} ended, and nobody has released the lock since; free the window",
                           global ? "the lock of all ranks" : fmt::format("the lock of rank {}", lock.rank), ended)};
}

// Returns the error of a wait for a lost lock, which later attempts get immediately; or success, if the lock can be
// acquired without the global lock now.
Status Window::declare_lost(const epochs::AwaitedLock& lock, LockType type, const Error& why) {
  bool dispensable = false;
  if (lock.word == epochs::GlobalLock::kWord && type == LockType::kExclusive) {
    epochs::LoseGlobalLock<ControlMemory> lose(control_, lock.rank);
    if (Status tried = run(space_->wake_event(), lose); !tried) return tried;
    dispensable = lose.lost();
  }
  const auto held = guard();
  lost_locks_.push_back({lock, type, why});
  if (!dispensable) return why;
  locks_.lose_global_lock();
  return {};
}

// `rank`: that of the lock, or -1 for a lock_all.
Status Window::check_not_lost(int rank, LockType type) {
  const auto held = guard();
  const bool all = rank < 0;
  for (const auto& [lock, by, why] : lost_locks_) {
    // An exclusive lock may be possible where a lock_all is not (LoseGlobalLock).
    const bool needed = lock.word == epochs::GlobalLock::kWord
                            ? all || (by == type && locks_.needs_global_lock(type))
                            : lock.rank == rank || (all && !locks_.has_global_lock());
    if (needed) return why;
  }
  return {};
}

Status Window::run_to_end(auto& protocol, int peer) {
  using Clock = LongWait::Clock;
  constexpr bool kMayWait = requires { protocol.awaited(); };
  const std::chrono::milliseconds timeout = std::chrono::seconds(Process::instance().settings().value()->peer_timeout);
  // Two looks find the death of a rank of this node, and three that of another one.
  const auto pause = timeout / 6;
  Status first;
  std::optional<Clock::time_point> until;  // after a failure: of waiting for others
  LockLook look{Clock::now() + pause};
  for (bool over = false;;) {
    wait_until(space_->wake_event(), [&] {
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
      if (expired) until.reset();
      look.next = Clock::now() + pause;
      const std::optional<epochs::AwaitedLock> lock = protocol.awaited();
      if (!lock) continue;
      // Without memory for it, the next look may find the same. The protocol must not be left halfway.
      std::optional<Error> lost;
      if (!expired) (void)without_bad_alloc([&] { return lost = find_lost(*lock, look), Status(); });
      if (expired) {
        log(LogLevel::kError,
            "a lock of rank {} that failed cannot be taken out of its queue, or of that of the global lock at rank {}: "
            "others hold theirs for more than FARSIDE_PEER_TIMEOUT; locks of this window may wait for ever",
            peer, locks_.home());
      } else if (lost) {
        if (first) first = without_bad_alloc([&] { return declare_lost(*lock, protocol.type(), *lost); });
      } else {
        continue;
      }
      protocol.stop_waiting();
    }
  }
}

Outcome Window::acquire(HeldLock& lock, const std::optional<std::uint64_t>& taken) {
  const bool carried = report_broken_ != nullptr;
  const bool with_global_lock = locks_.needs_global_lock(lock.type);
  LockTarget acquire(control_, locks_, lock.target, lock.type, taken, carried, near_place(lock));
  const WaitReason reason(*this, [&] { return awaited_lock(lock.target, lock.type); });
  Status status = run_to_end(acquire, lock.target);
  if (status && !acquire.ok() && with_global_lock && !locks_.needs_global_lock(lock.type)) return this->acquire(lock);
  lock.token = acquire.token();
  lock.near = acquire.near();
  if (lock.near > 1) Process::instance().statistics().add(RouteKind::kMapped, Counted::kNearHandOff, 0);
  if (acquire.out_of_wake_words()) return Outcome(Status(out_of_wake_words()));
  if (!acquire.saw_exposure() || !status) return status;
  if (!carried) return kPostedWhileLocked;
  const auto held = guard();
  warn(fault_of(kPostedWhileLocked));
  return {};
}

epochs::NearPlace Window::near_place(const HeldLock& lock) const {
  if (lock.type != LockType::kExclusive || near_hand_offs_ == 0) return {};
  const int home = space_->near_home(lock.target);
  return home < 0 ? epochs::NearPlace{} : epochs::NearPlace{home, near_hand_offs_};
}

bool Window::may_defer(const HeldLock& lock) const {
  // With a trace the lock is acquired at once, so that the trace shows the wait in MPI_Win_lock.
  return lock.needs_release && !threaded() && !locks_.needs_global_lock(lock.type) && strict_ == nullptr &&
         Trace::active() == nullptr && space_->may_defer_lock(lock.target);
}

Outcome Window::acquire_deferred_lock() {
  deferring_ = nullptr;
  locks_.resume_deferred();
  HeldLock& lock = locks_.locks().back();
  Outcome acquired = space_->acquire_deferred_lock(lock.target, [&] { return acquire(lock); });
  if (acquired) return acquired;
  // The call that reports the failure may be for another target or window.
  Fault fault = acquired.fault();
  if (fault.target == Fault::kNoTarget) fault.target = lock.target;
  epoch_.lock_refused(lock.target);
  locks_.locks().pop_back();
  return fault;
}

Outcome Window::unlock_deferred(HeldLock& lock, bool& over) {
  using epochs::LockWord, epochs::TargetLock;
  const auto step = [](std::uint64_t adds, std::uint64_t stops) {
    return ControlStep{ControlCall::kFetchAdd, {}, TargetLock::kWord, adds, stops};
  };
  LockedResult locked_result;
  over = true;
  Status done = space_->execute_locked(lock.target, step(LockWord::arrive(lock.type), LockWord::contenders(lock.type)),
                                       step(LockWord::depart(lock.type), 0), locked_result);
  if (!done) return done;
  if (!locked_result.stopped) {
    lock.token = epochs::LockToken(LockWord::ticket(locked_result.acquire_step));
    return TargetLock::nobody_waits(locked_result.release_step, lock.type) ? Status()
                                                                           : hand_off(lock, locked_result.release_step);
  }
  if (Outcome o = acquire(lock, locked_result.acquire_step); !o) return o;
  space_->keep_again(lock.target, std::move(locked_result.list));
  over = false;
  return {};
}

// Completes MPI_Win_lock. Precondition: the lock is awaited in the epoch state.
Outcome Window::acquire_or_defer(HeldLock lock) {
  if (may_defer(lock)) {
    const auto take = [this]() -> Status {
      Outcome acquired = acquire_deferred_lock();
      if (acquired) return {};
      const Fault& fault = acquired.fault();
      return Error{fault.error_class == MPI_ERR_RMA_CONFLICT ? ErrorKind::kConflict : ErrorKind::kPeer, fault.text,
                   fault.target};
    };
    // The first contact with the target may fail.
    if (Status deferred = without_bad_alloc([&] { return space_->defer_lock(lock.target, take); }); !deferred) {
      epoch_.lock_refused(lock.target);
      return deferred;
    }
    deferring_ = this;
    locks_.defer(lock.target, lock.type);
    epoch_.lock_acquired(lock.target);  // the rules treat a deferred lock as held; there is one thread
    return {};
  }
  if (lock.needs_release) {
    if (Outcome o = without_bad_alloc([&] { return acquire(lock); }); !o) {
      const auto held = guard();
      epoch_.lock_refused(lock.target);
      return o;
    }
    // The release of a global lock at a third rank is not ordered behind the data, so nothing would be gained.
    const bool near = locks_.home() == lock.target || locks_.home() == space_->rank();
    if (!locks_.needs_global_lock(lock.type) || near) space_->expect_release(lock.target);
  }
  const auto held = guard();
  locks_.locks().push_back(lock);
  epoch_.lock_acquired(lock.target);
  return {};
}

// Hands off a lock after its departure, which found `before` in the lock word, because others wait.
Status Window::hand_off(const HeldLock& lock, std::uint64_t before) {
  epochs::ReleaseLock<ControlMemory> release(control_, lock.target, lock.type, lock.token, before);
  Status released = run(space_->wake_event(), release);
  return released ? control_.take_post_error() : std::move(released);
}

Status Window::unlock_contended(const HeldLock& lock, std::uint64_t before) {
  progress_runtime();
  return hand_off(lock, before);
}

// If ranks outnumber cores, a lock that passes in ticket order mostly goes to a sleeping rank, at the cost of a context
// switch. So a rank first tries to acquire the lock without a ticket. A rank with a ticket is never overtaken.
template <class Attempt>
Window::FastPath Window::acquire_without_ticket(int lock_type, int rank, Attempt&& attempt) {
  using Clock = std::chrono::steady_clock;
  using epochs::LockWord;
  // Applies once this rank has yielded. Measured on 2 cores: with a limit of 8, 16 ranks take twice as long; with
  // 1,024, a rank that often meets a preempted holder gets a hundredth of the turns.
  constexpr std::uint64_t kMostOvertakers = 64;
  // Long enough for 2 cores to hand the lock to 16 sleeping ranks. So a queue empties before others join it.
  constexpr std::chrono::microseconds kLongest{500};
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  std::uint64_t& word = *lock_word(rank);
  const std::uint64_t first = LockWord::ticket(ControlWord::look(word));
  Clock::time_point until{};
  for (Waiter waiter(Process::instance(), space_->wake_event()); !waiter.may_sleep();) {
    waiter.pause();
    const std::uint64_t now = ControlWord::look(word);
    if (epochs::TargetLock::holds_at_once(now, type)) {
      if (const FastPath result = attempt(); result != FastPath::kContended) return result;
    }
    if (LockWord::exposed(now)) break;
    if (!waiter.has_yielded()) continue;
    if (LockWord::distance(LockWord::ticket(now), first) > kMostOvertakers) break;
    if (until == Clock::time_point{}) until = Clock::now() + kLongest;
    if (Clock::now() >= until) break;
  }
  return FastPath::kContended;
}

Outcome Window::lock_contended(int lock_type, int rank) {
  const auto attempt = [&] { return try_lock(lock_type, rank, 0); };
  return acquire_without_ticket(lock_type, rank, attempt) == FastPath::kDone ? Outcome()
                                                                             : lock_slow(lock_type, rank, 0);
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
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  const auto attempt = [&] {
    if (lock_stripes_ != nullptr) {
      if (lock_in_stripe(lock_type, rank, assert)) return FastPath::kDone;
      // Otherwise the epoch or another thread is in the way, or the arguments are.
      std::uint64_t* const word = assert == 0 && !locks_.needs_global_lock(type) ? lock_word(rank) : nullptr;
      const bool free = word == nullptr || epochs::TargetLock::holds_at_once(ControlWord::look(*word), type);
      return free ? FastPath::kNotTaken : FastPath::kContended;
    }
    const auto held = guard();
    return try_lock(lock_type, rank, assert);
  };
  FastPath taken = fast_path_ ? attempt() : FastPath::kNotTaken;
  if (taken == FastPath::kContended) taken = acquire_without_ticket(lock_type, rank, attempt);
  if (taken == FastPath::kDone) return {};
  return lock_slow(lock_type, rank, assert);
}

void Window::use_stripes() {
  if (!fast_path_ || !space_->words_mapped_in_nodes() || lock_stripes_ != nullptr) return;
  locks_.locks().reserve(WindowLockStripes::kStripes);
  lock_stripes_ = std::make_unique<WindowLockStripes>();
}

bool Window::open_stripes(int rank) {
  if (lock_stripes_->is_open() || lock_word(rank) == nullptr) return false;
  const WindowLocks::Guard held = locks_.guard();
  // close_stripes() needs no memory.
  if (!epoch_.allows_fast_lock() || !epoch_.reserve_locks()) return false;
  lock_stripes_->open();
  return true;
}

void Window::close_stripes() {
  const bool taken = lock_stripes_->close([this](const HeldLock& lock) {
    (void)epoch_.lock(lock.target, lock.type);
    locks_.locks().push_back(lock);
  });
  if (taken) epoch_.locked_meanwhile();
}

Outcome Window::do_unlock(int rank, HeldLock& lock) {
  std::uint64_t before = 0;
  const auto attempt = [&] {
    // With fast_releases_ the entry point has tried the stripe already.
    if (!fast_releases_) {
      if (const FastPath released = unlock_in_stripe(rank, lock, before); released != FastPath::kNotTaken)
        return released;
    }
    const auto held = guard();
    return try_unlock(rank, lock, before);
  };
  switch (fast_path_ && complete_puts(rank) ? attempt() : FastPath::kNotTaken) {
    case FastPath::kDone: progress_runtime(); return {};
    case FastPath::kContended: return unlock_contended(lock, before);
    case FastPath::kNotTaken: break;
  }
  return unlock_slow(rank, lock);
}

Outcome Window::unlock(int rank) {
  HeldLock lock;
  if (statistics_ == nullptr || rank == MPI_PROC_NULL) return do_unlock(rank, lock);
  const WindowStatistics::Moment begun = WindowStatistics::begin_untimed();
  Outcome outcome = do_unlock(rank, lock);
  if (outcome) {
    statistics_->unlocked(rank, lock.type == LockType::kShared ? EpochKind::kLockShared : EpochKind::kLockExclusive,
                          begun);
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
  if (Status lost = (assert& MPI_MODE_NOCHECK) != 0 ? Status() : check_not_lost(rank, type); !lost) return lost;
  {
    const auto held = guard();
    // Room for this lock, before it is acquired.
    auto& locks = locks_.locks();
    if (epoch_.locks_begun() >= locks.capacity()) locks.reserve(2 * epoch_.locks_begun());
    if (const epochs::Violation v = epoch_.begin_lock(rank, type)) return v;
    if (!epoch_.awaits(rank)) return {};
  }
  return acquire_or_defer({.target = rank, .type = type, .needs_release = (assert& MPI_MODE_NOCHECK) == 0});
}

Outcome Window::unlock_slow(int rank, HeldLock& lock) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  bool deferred = false, releases = false;
  {
    const auto held = guard();
    const bool locked = epoch_.locked(rank).has_value();
    if (const epochs::Violation v = epoch_.unlock(rank)) return v;
    releases = locked && !epoch_.locked(rank);
    deferred = locks_.has_deferred() && locks_.deferred().target == rank;
    if (releases) lock = locks_.take(rank);
  }
  if (!releases) return space_->flush(rank);
  progress_runtime();
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->completed(rank, lock.type == LockType::kExclusive); });
  if (!lock.needs_release) return first_of(space_->flush(rank), std::move(checked));
  if (deferred) {
    deferring_ = nullptr;
    locks_.resume_deferred();
    bool over = false;
    if (Outcome o = unlock_deferred(lock, over); over) return first_of(std::move(o), space_->flush(rank));
  }
  // The data must take effect before the releases, so this waits for operations that the releases would overtake.
  UnlockTarget unlock(control_, locks_, lock, near_place(lock));
  Status first = unlock.needs_complete_data() ? space_->flush(rank) : space_->order_before_release(rank);
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  keep(run_to_end(unlock, rank));
  keep(space_->flush(rank));
  unlock.data_complete();
  keep(run_to_end(unlock, rank));
  keep(control_.take_post_error());
  return first_of(first, std::move(checked));
}

// The lock_all covers loads from and stores to the own window, too.
Outcome Window::do_lock_all(int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (Outcome o = acquire_deferred(); !o) return o;
  const bool unchecked = (assert& MPI_MODE_NOCHECK) != 0;
  if (Status lost = unchecked ? Status() : check_not_lost(-1, LockType::kShared); !lost) return lost;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_lock_all()) return v;
    if (epoch_.access() != epochs::Access::kLockingAll) return {};
    lock_all_unchecked_ = unchecked;
  }
  const auto acquire = [&]() -> Status {
    epochs::LockAll all(control_, locks_);
    const WaitReason reason(*this, [&] { return awaited_lock_all(all.awaited_rank()); });
    Status ended = run_to_end(all);
    return all.out_of_wake_words() ? Status(out_of_wake_words()) : std::move(ended);
  };
  const Status acquired = unchecked ? Status() : without_bad_alloc(acquire);
  const auto held = guard();
  if (acquired) {
    epoch_.lock_all_acquired();
  } else {
    epoch_.lock_all_refused();
  }
  return acquired;
}

Outcome Window::check_not_exposed(int rank) {
  epochs::ReadExposure<ControlMemory> look(control_, rank);
  const Status looked = run(space_->wake_event(), look);
  return looked && look.exposed() ? Outcome(kOperationWhilePosted) : Outcome(looked);
}

Outcome Window::do_unlock_all() {
  bool unchecked = false, releases = false;
  epochs::LockToken token;
  {
    const auto held = guard();
    const bool locked = epoch_.access() == epochs::Access::kLockedAll;
    if (const epochs::Violation v = epoch_.unlock_all()) return v;
    releases = locked && epoch_.access() != epochs::Access::kLockedAll;
    unchecked = lock_all_unchecked_;
    token = locks_.lock_all_token();
  }
  if (!releases) return space_->flush_all();
  progress_runtime();
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->completed_all(); });
  Status completed = space_->flush_all();
  if (unchecked) return first_of(completed, std::move(checked));
  epochs::UnlockAll all(control_, locks_, token);
  Status released = run_to_end(all);
  if (released) released = control_.take_post_error();
  return first_of(first_of(completed, released), std::move(checked));
}

Outcome Window::do_flush(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  if (!holds_in_stripe(rank)) {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  bool alone = false;
  if (strict_) [[unlikely]] {
    const auto held = guard();
    alone = epoch_.locked(rank) == LockType::kExclusive;
  }
  progress_runtime();
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->completed(rank, alone); });
  return first_of(space_->flush(rank), std::move(checked));
}

Outcome Window::do_flush_all() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  progress_runtime();
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->completed_all(); });
  return first_of(space_->flush_all(), std::move(checked));
}

Outcome Window::flush_local_strictly(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  Outcome checked = without_bad_alloc([&] { return strict_->locally_completed(rank); });
  return first_of(space_->flush(rank), std::move(checked));
}

Outcome Window::flush_local_all_strictly() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  Outcome checked = without_bad_alloc([&] { return strict_->locally_completed_all(); });
  return first_of(space_->flush_all(), std::move(checked));
}

Outcome Window::sync() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.sync()) return v;
  }
  // Programs poll with MPI_Win_sync, so this makes progress.
  progress_runtime();
  Process::instance().poll();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

}  // namespace farside::pmpi
