// SPDX-License-Identifier: BSD-3-Clause
// Synchronization calls of a window (MPI 4.0 section 12.5).
#include <algorithm>
#include <bit>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include "epochs/barrier.hpp"
#include "epochs/lock.hpp"
#include "pmpi/collective_check.hpp"
#include "pmpi/window.hpp"

namespace farside::pmpi {
namespace {

using epochs::LockType;

Outcome check_assert(int assert, int allowed_bits, const char* allowed) {
  if ((assert & ~allowed_bits) == 0) return {};
  return Fault{MPI_ERR_ASSERT,
               fmt::format("assertion {:#x} is not one of this call; allowed: {} (MPI 4.0 section 12.5.5)", assert, allowed)};
}

// Keeps the endpoint and the MPI runtime moving until done() says true.
template <class Done>
void wait_until(Doorbell& bell, Done&& done) {
  for (Waiter waiter(Process::instance(), bell); !done();) waiter.pause();
}

// Runs a protocol to its end, or until an operation of it has failed.
template <class Protocol>
Status run(Doorbell& bell, Protocol& protocol) {
  ControlMemory::Operation* failed = nullptr;
  wait_until(bell, [&] { return protocol.advance() || (failed = protocol.failed_operation()) != nullptr; });
  return failed == nullptr ? Status() : failed->take_error();
}

// Tells all members of a group and waits until they have been told.
Status notify(Doorbell& bell, ControlMemory& control, int rank, epochs::Notify<ControlMemory>::What what,
              std::span<const int> group) {
  epochs::Notify<ControlMemory> notice(control, rank, what, group);
  return run(bell, notice);
}

using What = epochs::Notify<ControlMemory>::What;
using Mark = epochs::ExposureMark<ControlMemory>;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at once.
constexpr epochs::Violation kLockedWhilePosted{epochs::ErrorClass::kRmaConflict,
                                               "post while the own window is locked by some rank",
                                               "post when all locks on this window were released",
                                               "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};
constexpr epochs::Violation kPostedWhileLocked{epochs::ErrorClass::kRmaConflict,
                                               "lock of a target whose window is exposed by its MPI_Win_post",
                                               "lock it after the target's MPI_Win_wait",
                                               "MPI 4.0 section 12.5.3 (3.1: 11.5.3)"};

}  // namespace

Outcome Window::check_rank(int rank) const {
  if (rank >= 0 && rank < space_->ranks()) return {};
  return Fault{MPI_ERR_RANK, fmt::format("rank {} is not in the window's group of {}; use 0 to {} or MPI_PROC_NULL "
                                         "(MPI 4.0 section 12.3)", rank, space_->ranks(), space_->ranks() - 1)};
}

Outcome Window::translate(MPI_Group group, std::vector<int>& ranks) const {
  if (group == MPI_GROUP_NULL) {
    return Fault{MPI_ERR_GROUP, "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY or a part of the window's group "
                                "(MPI 4.0 section 12.5.2)"};
  }
  int size = 0;
  PMPI_Group_size(group, &size);
  std::vector<int> theirs(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) theirs[static_cast<std::size_t>(i)] = i;
  ranks.resize(theirs.size());
  PMPI_Group_translate_ranks(group, size, theirs.data(), group_, ranks.data());
  const auto stranger = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED);
  if (stranger == ranks.end()) return {};
  return Fault{MPI_ERR_GROUP, fmt::format("member {} of the group is not in the window's group; make it from that group "
                                          "(MPI 4.0 section 12.5.2)", stranger - ranks.begin())};
}

Outcome Window::barrier(std::uint8_t said) {
  const int rank = space_->rank();
  epochs::Barrier<ControlMemory> barrier(control_, rank, space_->ranks(), ++barriers_, said,
                                         std::exchange(said_in_barrier_, said));
  if (Status met = run(space_->bell(), barrier); !met) return met;
  Outcome agreed;
  const auto held = guard();
  if ((said & epochs::BarrierWord::kNoPut) != 0) epoch_.promised_no_put(rank);
  for (int round = 0; round < barrier.rounds(); ++round) {
    const std::uint8_t heard = barrier.heard(round);
    if ((heard & epochs::BarrierWord::kNoPut) != 0) epoch_.promised_no_put(barrier.peer(round));
    if (agreed && heard != said) agreed = check_agreement(rank, said, barrier.peer(round), heard);
  }
  return agreed;
}

Outcome Window::fence(int assert) {
  constexpr int kAllowed = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
  if (Outcome o = check_assert(assert, kAllowed, "MPI_MODE_NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED"); !o) return o;
  {
    const auto held = guard();
    const epochs::FenceAssert given{(assert & MPI_MODE_NOPRECEDE) != 0, (assert & MPI_MODE_NOSUCCEED) != 0,
                                    (assert & MPI_MODE_NOSTORE) != 0, (assert & MPI_MODE_NOPUT) != 0};
    if (const epochs::Violation v = epoch_.fence(given)) return v;
  }
  if (strict_) [[unlikely]] strict_->completed_all();
  // Also after a failed operation: the others wait in the barrier.
  Status completed = space_->flush_all();
  Outcome met = barrier(said_by_fence(assert));
  return completed ? std::move(met) : Outcome(completed);
}

Outcome Window::post(MPI_Group group, int assert) {
  constexpr int kAllowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
  if (Outcome o = check_assert(assert, kAllowed, "MPI_MODE_NOCHECK, NOSTORE, NOPUT"); !o) return o;
  std::vector<int> origins;
  if (Outcome o = translate(group, origins); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.post(origins)) return v;
  }
  // The group may be empty: then nobody is exposed to.
  if (marks_exposure_ && !origins.empty() && !Mark::set(control_)) {
    // Somebody may be about to leave: look once more before accusing.
    Process::instance().poll();
    std::this_thread::yield();
    if (!Mark::set(control_)) {
      const auto held = guard();
      epoch_.post_refused();
      return kLockedWhilePosted;
    }
  }
  // With MPI_MODE_NOCHECK the origins do not wait for this post.
  if ((assert & MPI_MODE_NOCHECK) != 0) return {};
  const What notice = (assert & MPI_MODE_NOPUT) != 0 ? What::kPostedNoPut : What::kPosted;
  return notify(space_->bell(), control_, space_->rank(), notice, origins);
}

Outcome Window::start(MPI_Group group, int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  std::vector<int> targets;
  if (Outcome o = translate(group, targets); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.start(targets)) return v;
  }
  if ((assert & MPI_MODE_NOCHECK) != 0) return {};
  std::vector<int> no_put;
  epochs::AwaitPosts<ControlMemory> posts(control_, targets, &no_put);
  wait_until(space_->bell(), [&] { return posts.advance(); });
  if (!no_put.empty()) {
    const auto held = guard();
    for (const int target : no_put) epoch_.promised_no_put(target);
  }
  return {};
}

Outcome Window::complete() {
  std::vector<int> targets;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.complete()) return v;
    targets.assign(epoch_.started_group().begin(), epoch_.started_group().end());
  }
  if (strict_) [[unlikely]] strict_->completed_all();
  // The endpoint does not order atomics behind writes: the data must have arrived before the notice leaves.
  Status first;
  for (const int target : targets) {
    if (Status status = space_->flush(target); !status && first) first = std::move(status);
  }
  Status told = notify(space_->bell(), control_, space_->rank(), What::kCompleted, targets);
  return first ? std::move(told) : std::move(first);
}

Outcome Window::wait() {
  std::size_t origins = 0;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.wait()) return v;
    origins = epoch_.posted_group().size();
  }
  wait_until(space_->bell(), [&] { return completions_.take(control_, origins); });
  if (marks_exposure_ && origins > 0) Mark::clear(control_);
  const auto held = guard();
  epoch_.exposure_ended();
  return {};
}

Outcome Window::test(int* flag) {
  *flag = 0;
  // A program that only tests must still make progress.
  Process::instance().poll();
  Process::instance().poll_runtime();
  const auto held = guard();
  if (const epochs::Violation v = epoch_.test()) return v;
  const std::size_t origins = epoch_.posted_group().size();
  if (!completions_.take(control_, origins)) return {};
  if (marks_exposure_ && origins > 0) Mark::clear(control_);
  epoch_.exposure_ended(epochs::Call::kTest);
  *flag = 1;
  return {};
}

Outcome Window::acquire(int rank, LockType type, std::uint64_t& ticket) {
  // Threads that wait for different targets at once each need a wake word of their own.
  std::uint32_t node = 0;
  const auto claim = [&] {
    const auto held = guard();
    node = static_cast<std::uint32_t>(std::countr_one(wake_words_in_use_));
    if (node >= epochs::ControlBlock::kWakeWords) return false;
    wake_words_in_use_ |= 1U << node;
    return true;
  };
  wait_until(space_->bell(), claim);
  epochs::AcquireLock<ControlMemory> acquire(control_, space_->rank(), rank, type, node);
  Status status = run(space_->bell(), acquire);
  ticket = acquire.ticket();
  {
    const auto held = guard();
    wake_words_in_use_ &= ~(1U << node);
  }
  if (!status || !acquire.saw_exposure()) return status;
  Status released = release(rank, type, ticket);
  return released ? Outcome(kPostedWhileLocked) : Outcome(released);
}

Status Window::release(int rank, LockType type, std::uint64_t ticket) {
  epochs::ReleaseLock<ControlMemory> release(control_, rank, type, ticket);
  return run(space_->bell(), release);
}

Outcome Window::lock(int lock_type, int rank, int assert) {
  if (lock_type != MPI_LOCK_SHARED && lock_type != MPI_LOCK_EXCLUSIVE) {
    return Fault{MPI_ERR_LOCKTYPE, fmt::format("{} is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE (MPI 4.0 section 12.5.3)",
                                               lock_type)};
  }
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  const LockType type = lock_type == MPI_LOCK_SHARED ? LockType::kShared : LockType::kExclusive;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.lock(rank, type)) return v;
  }
  Held lock{rank, type, (assert & MPI_MODE_NOCHECK) == 0, 0};
  if (lock.taken) {
    if (Outcome o = acquire(rank, type, lock.ticket); !o) {
      const auto held = guard();
      epoch_.lock_refused(rank);
      return o;
    }
  }
  const auto held = guard();
  held_.push_back(lock);
  return {};
}

Outcome Window::unlock(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  Held lock;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock(rank)) return v;
    // The last one taken is mostly the first one given back.
    const auto found = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& h) { return h.rank == rank; });
    if (found == held_.rend()) {
      return Fault{MPI_ERR_RMA_SYNC, "another thread is still waiting for this lock; unlock it after that"};
    }
    lock = *found;
    held_.erase(std::next(found).base());
  }
  look_after_runtime();
  if (strict_) [[unlikely]] strict_->completed(rank);
  Status completed = space_->flush(rank);
  if (!lock.taken) return completed;
  Status released = release(rank, lock.type, lock.ticket);
  return completed ? std::move(released) : std::move(completed);
}

// All ranks' locks are taken here, in the order of ranks. Taking each at the first operation on it would cost less, but
// deadlocks: of two such epochs that use the targets in different orders, each may wait behind a writer that waits for
// the other. Loads and stores on the own window are covered as well.
Outcome Window::lock_all(int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.lock_all()) return v;
    lock_all_unchecked_ = (assert & MPI_MODE_NOCHECK) != 0;
  }
  if (lock_all_unchecked_) return {};
  for (int target = 0; target < space_->ranks(); ++target) {
    std::uint64_t ticket = 0;
    Outcome taken = acquire(target, LockType::kShared, ticket);
    if (taken) continue;
    const Status released = release_shared(target);
    const auto held = guard();
    epoch_.lock_all_refused();
    return taken;
  }
  return {};
}

Status Window::release_shared(int count) {
  std::deque<epochs::ReleaseLock<ControlMemory>> releases;
  for (int target = 0; target < count; ++target) releases.emplace_back(control_, target, LockType::kShared, 0);
  Status first;
  for (auto& release : releases) {
    if (Status status = run(space_->bell(), release); !status && first) first = std::move(status);
  }
  return first;
}

Outcome Window::unlock_all() {
  bool unchecked = false;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.unlock_all()) return v;
    unchecked = lock_all_unchecked_;
  }
  look_after_runtime();
  if (strict_) [[unlikely]] strict_->completed_all();
  Status completed = space_->flush_all();
  if (unchecked) return completed;
  Status released = release_shared(space_->ranks());
  return completed ? std::move(released) : std::move(completed);
}

Outcome Window::flush(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  look_after_runtime();
  if (strict_) [[unlikely]] strict_->completed(rank);
  return space_->flush(rank);
}

Outcome Window::flush_all() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  look_after_runtime();
  if (strict_) [[unlikely]] strict_->completed_all();
  return space_->flush_all();
}

Outcome Window::flush_local_strictly(int rank) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush(rank)) return v;
  }
  strict_->locally_completed(rank);
  return space_->flush(rank);
}

Outcome Window::flush_local_all_strictly() {
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.flush_all()) return v;
  }
  for (int rank = 0; rank < space_->ranks(); ++rank) strict_->locally_completed(rank);
  return space_->flush_all();
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

Outcome Window::check_free() {
  const auto held = guard();
  return epoch_.free();
}

Outcome Window::end() {
  Status completed = space_->flush_all();
  Outcome met = barrier(epochs::BarrierWord::kFree);
  return completed ? std::move(met) : Outcome(completed);
}

void Window::look_after_runtime() {
  // Not a counter to rely on: threads may lose each other's steps.
  constexpr std::uint32_t kEvery = 64;
  const std::uint32_t calls = calls_.load(std::memory_order_relaxed) + 1;
  calls_.store(calls, std::memory_order_relaxed);
  if (calls % kEvery == 0) [[unlikely]] Process::instance().poll_runtime();
}

}  // namespace farside::pmpi
