// SPDX-License-Identifier: BSD-3-Clause
// Synchronization calls of a window (MPI 4.0 section 12.5).
#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

#include "epochs/barrier.hpp"
#include "epochs/gate_exposure.hpp"
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
  if (done()) return;
  for (Waiter waiter(Process::instance(), bell);;) {
    waiter.pause();
    if (done()) return;
  }
}

// Runs a protocol to its end, or until an operation of it has failed.
template <class Protocol>
Status run(Doorbell& bell, Protocol& protocol) {
  ControlMemory::Operation* failed = nullptr;
  wait_until(bell, [&] { return protocol.advance() || (failed = protocol.failed_operation()) != nullptr; });
  return failed == nullptr ? Status() : failed->take_error();
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

Outcome Window::translate(MPI_Group group, Members& members) const {
  if (group == MPI_GROUP_NULL) {
    return Fault{MPI_ERR_GROUP, "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY or a part of the window's group "
                                "(MPI 4.0 section 12.5.2)"};
  }
  int size = 0;
  PMPI_Group_size(group, &size);
  Members theirs(static_cast<std::size_t>(size));
  std::iota(theirs.ranks().begin(), theirs.ranks().end(), 0);
  members.resize(static_cast<std::size_t>(size));
  const std::span<int> ranks = members.ranks();
  PMPI_Group_translate_ranks(group, size, theirs.ranks().data(), group_, ranks.data());
  const auto stranger = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED);
  if (stranger == ranks.end()) return {};
  return Fault{MPI_ERR_GROUP, fmt::format("member {} of the group is not in the window's group; make it from that group "
                                          "(MPI 4.0 section 12.5.2)", stranger - ranks.begin())};
}

Outcome Window::members_of(MPI_Group group, KnownGroup& known, Members& own, std::span<const int>& ranks) const {
  if (threaded_) {
    Outcome outcome = translate(group, own);
    ranks = own.ranks();
    return outcome;
  }
  if (!known.is(group)) {
    if (Outcome o = translate(group, known.learn(group)); !o) {
      known.forget();
      return o;
    }
  }
  ranks = known.members();
  return {};
}

// Tells all members of a group and waits until they have been told.
Status Window::tell(What what, std::span<const int> members) {
  const int self = space_->rank();
  if (!space_->all_immediate()) {
    epochs::Notify<ControlMemory> notice(control_, self, what, members);
    return run(space_->bell(), notice);
  }
  const auto notice = epochs::Notify<ControlMemory>::notice_of(self, what);
  for (const int member : members) control_.tell_now(member, notice.word, notice.added);
  if (!members.empty()) space_->stores_settled_by_atomic();
  return {};
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
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->fence_reached();
  // Also after a failed operation: the others wait in the barrier.
  Status completed = space_->flush_all();
  Outcome met = barrier(said_by_fence(assert));
  if (strict_) [[unlikely]] strict_->fence_passed((assert & MPI_MODE_NOSUCCEED) == 0);
  return first_of(first_of(completed, std::move(met)), std::move(checked));
}

Outcome Window::expose() {
  if (!Mark::set(control_)) return kLockedWhilePosted;
  if (!marks_exposure_at_gate()) return {};
  epochs::ExposeAtGate<ControlMemory> exposure(control_, gate_home_);
  const Status status = run(space_->bell(), exposure);
  if (status && exposure.exposed()) return {};
  Mark::clear(control_);
  return status ? Outcome(kLockedWhilePosted) : Outcome(status);
}

Status Window::conceal() {
  Mark::clear(control_);
  if (!marks_exposure_at_gate()) return {};
  epochs::ConcealAtGate<ControlMemory> end(control_, gate_home_);
  return run(space_->bell(), end);
}

Outcome Window::post(MPI_Group group, int assert) {
  constexpr int kAllowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
  if (Outcome o = check_assert(assert, kAllowed, "MPI_MODE_NOCHECK, NOSTORE, NOPUT"); !o) return o;
  Members own;
  std::span<const int> origins;
  if (Outcome o = members_of(group, last_posted_, own, origins); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.post(origins)) return v;
  }
  // The group may be empty: then nobody is exposed to.
  if (marks_exposure_ && !origins.empty()) {
    Outcome exposed = expose();
    if (!exposed) {
      // Somebody may be about to leave: look once more before accusing.
      Process::instance().poll();
      std::this_thread::yield();
      exposed = expose();
    }
    if (!exposed) {
      const auto held = guard();
      epoch_.post_refused();
      return exposed;
    }
  }
  // With MPI_MODE_NOCHECK the origins do not wait for this post.
  if ((assert & MPI_MODE_NOCHECK) != 0) return {};
  const What notice = (assert & MPI_MODE_NOPUT) != 0 ? What::kPostedNoPut : What::kPosted;
  return tell(notice, origins);
}

Outcome Window::start(MPI_Group group, int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  Members own;
  std::span<const int> targets;
  if (Outcome o = members_of(group, last_started_, own, targets); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.start(targets)) return v;
  }
  for (const int target : targets) space_->expect_release(target);
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
  std::span<const int> targets;
  Members own;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.complete()) return v;
    targets = epoch_.started_group();
    if (threaded_) {
      // Another thread may start again before all are told.
      own.resize(targets.size());
      std::copy(targets.begin(), targets.end(), own.ranks().begin());
      targets = own.ranks();
    }
  }
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->start_completed();
  // The data must take effect before the notice does; this waits for what the notice would overtake.
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  const bool immediate = space_->all_immediate();
  for (const int target : targets) {
    if (!immediate) keep(space_->settle(target));
  }
  keep(tell(What::kCompleted, targets));
  for (const int target : targets) {
    if (!immediate) keep(space_->flush(target));
  }
  return first_of(first, std::move(checked));
}

Outcome Window::wait() {
  std::size_t origins = 0;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.wait()) return v;
    origins = epoch_.posted_group().size();
  }
  wait_until(space_->bell(), [&] { return completions_.take(control_, origins); });
  return end_exposure(epochs::Call::kWait, origins);
}

Outcome Window::end_exposure(epochs::Call call, std::size_t origins) {
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->exposure_ended();
  Status concealed;
  if (marks_exposure_ && origins > 0) concealed = conceal();
  const auto held = guard();
  epoch_.exposure_ended(call);
  return first_of(concealed, std::move(checked));
}

Outcome Window::test(int* flag) {
  *flag = 0;
  // A program that only tests must still make progress.
  Process::instance().poll();
  Process::instance().poll_runtime();
  std::size_t origins = 0;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.test()) return v;
    origins = epoch_.posted_group().size();
    if (!completions_.take(control_, origins)) return {};
  }
  *flag = 1;
  return end_exposure(epochs::Call::kTest, origins);
}

// Threads that wait for different targets at once each need wake words of their own.
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

template <class Acquire>
Status Window::acquire_by(Acquire& acquire, std::span<const std::uint32_t> wake_words, epochs::Hold& hold,
                          bool& saw_exposure) {
  Status status = run(space_->bell(), acquire);
  if (status) {
    hold = acquire.hold();
    saw_exposure = acquire.saw_exposure();
  }
  const auto held = guard();
  for (const std::uint32_t word : wake_words) wake_words_in_use_ &= ~(1U << word);
  return status;
}

template <class Lock>
Status Window::acquire(int rank, LockType type, epochs::Hold& hold, bool& saw_exposure,
                       std::optional<std::uint64_t> before) {
  const auto words = claim_wake_words<1>();
  using Acquire = epochs::AcquireLock<ControlMemory, Lock>;
  const int self = space_->rank();
  Acquire acquire =
      before ? Acquire(control_, self, rank, type, words[0], *before) : Acquire(control_, self, rank, type, words[0]);
  return acquire_by(acquire, words, hold, saw_exposure);
}

Outcome Window::acquire_of(int rank, LockType type, epochs::Hold& hold, std::optional<std::uint64_t> before) {
  bool saw_exposure = false;
  Status status = passes_gate(type) && come_to_gate()
                      ? acquire_with_gate(rank, hold, saw_exposure)
                      : acquire<epochs::TargetLock>(rank, type, hold, saw_exposure, before);
  if (status && !saw_exposure) return {};
  if (status) status = release(rank, type, hold);
  if (passes_gate(type)) {
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

Status Window::acquire_with_gate(int rank, epochs::Hold& hold, bool& saw_exposure) {
  const auto words = claim_wake_words<2>();
  epochs::AcquireLockAndGate<ControlMemory> acquire(control_, space_->rank(), rank, gate_home_, words[0], words[1]);
  Status status = acquire_by(acquire, words, hold, saw_exposure);
  const auto held = guard();
  gate_hold_ = status ? acquire.gate_hold() : epochs::Hold{};
  entering_gate_ = false;
  return status;
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

// A lock that the epoch knows of already.
Outcome Window::keep_lock(Held lock, std::optional<std::uint64_t> before) {
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
    if (!gate || near) space_->expect_release(lock.rank, !gate || gate_home_ != lock.rank);
  }
  const auto held = guard();
  held_.push_back(lock);
  return {};
}

// A lock that was left while others wait.
Status Window::pass_lock_on(const Held& lock, std::uint64_t before) {
  epochs::ReleaseLock<ControlMemory> release(control_, lock.rank, lock.type, lock.hold, before);
  return run(space_->bell(), release);
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
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.lock(rank, type)) return v;
  }
  return keep_lock({rank, type, (assert & MPI_MODE_NOCHECK) == 0, false, {}}, {});
}

Outcome Window::unlock_anyhow(int rank) {
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
  Outcome checked;
  if (strict_) [[unlikely]] checked = strict_->completed(rank, lock.type == LockType::kExclusive);
  if (!lock.taken) return first_of(space_->flush(rank), std::move(checked));
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

// Through the gate, or every rank's lock in the order of ranks. Taking each at the first operation on it would cost less
// than all, but deadlocks: of two such epochs that use the targets in different orders, each may wait behind a writer that
// waits for the other. Loads and stores on the own window are covered as well.
Outcome Window::lock_all(int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.lock_all()) return v;
    lock_all_unchecked_ = (assert & MPI_MODE_NOCHECK) != 0;
  }
  if (lock_all_unchecked_) return {};
  if (gate_home_ != kNoGate) {
    epochs::Hold hold;
    Outcome taken = pass_gate_for_all(hold);
    const auto held = guard();
    gate_hold_ = hold;
    if (!taken) epoch_.lock_all_refused();
    return taken;
  }
  const std::span holds(lock_all_holds_.data(), static_cast<std::size_t>(space_->ranks()));
  for (std::size_t target = 0; target < holds.size(); ++target) {
    Outcome taken = acquire_of(static_cast<int>(target), LockType::kShared, holds[target]);
    if (taken) continue;
    const Status released = release_shared(holds.first(target));
    const auto held = guard();
    epoch_.lock_all_refused();
    return taken;
  }
  return {};
}

Outcome Window::pass_gate_for_all(epochs::Hold& hold) {
  // Of the windows of others that are exposed, those exposed to this process are seen here, whoever knows of the others.
  if (epochs::any_post(control_, space_->ranks())) return kPostedWhileLocked;
  bool saw_exposure = false;
  if (Status passed = acquire<epochs::Gate>(gate_home_, LockType::kShared, hold, saw_exposure); !passed) return passed;
  if (!marks_exposure_at_gate()) return {};
  epochs::LookForExposures<ControlMemory> look(control_, gate_home_);
  Status status = run(space_->bell(), look);
  if (status && !look.any()) return {};
  return first_of(first_of(status, release_gate(LockType::kShared, hold)), kPostedWhileLocked);
}

Status Window::release_shared(std::span<const epochs::Hold> holds) {
  std::deque<epochs::ReleaseLock<ControlMemory>> releases;
  for (const epochs::Hold hold : holds) {
    releases.emplace_back(control_, static_cast<int>(releases.size()), LockType::kShared, hold);
  }
  Status first;
  for (auto& release : releases) {
    if (Status status = run(space_->bell(), release); !status && first) first = std::move(status);
  }
  return first;
}

Outcome Window::unlock_all() {
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

Outcome Window::flush_anyhow(int rank) {
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

Outcome Window::flush_all() {
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

Outcome Window::check_free() {
  const auto held = guard();
  return epoch_.free();
}

Outcome Window::end() {
  Status completed = space_->flush_all();
  Outcome met = barrier(epochs::BarrierWord::kFree);
  return first_of(completed, std::move(met));
}

}  // namespace farside::pmpi
