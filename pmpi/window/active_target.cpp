// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/active_target.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/passive_target.hpp"
#include "pmpi/window/wait_reports.hpp"

namespace farside::pmpi {

namespace {

using epochs::BarrierWord, epochs::ControlBlock;
using Mark = epochs::ExposureMark<ControlMemory>;

constexpr epochs::Violation kLockedWhilePosted = locked_and_exposed("post while the own window is locked by some rank",
                                                                    "post when all locks on this window were released");

Fault no_group() {
  return {MPI_ERR_GROUP, "the group is not valid, for instance because it was freed (MPI 4.0 section 12.5.2)"};
}

// The assertions of a fence as bits of BarrierWord: the ranks compare them in the barriers of fence and free.
std::uint8_t flags_of_fence(int assert) {
  unsigned flags = 0;
  if ((assert& MPI_MODE_NOPRECEDE) != 0) flags |= BarrierWord::kNoPrecede;
  if ((assert& MPI_MODE_NOSUCCEED) != 0) flags |= BarrierWord::kNoSucceed;
  if ((assert& MPI_MODE_NOPUT) != 0) flags |= BarrierWord::kNoPut;
  return static_cast<std::uint8_t>(flags);
}

// Whether operations may not have taken effect, though the program has made no mistake: their target must know.
bool lost(const Status& status) {
  return !status && (status.error().kind == ErrorKind::kPeer || status.error().kind == ErrorKind::kNoMemory);
}

Status incomplete(std::uint64_t rank) {
  return Error{ErrorKind::kPeer,
               fmt::format("operations of rank {} on this window have failed, and may be missing in the "
                           "memory of their targets; an error of that rank has the cause",
                           rank)};
}

// Fails with the class of a lost peer if the other rank could not notify some rank, with MPI_ERR_RMA_SYNC if one rank
// fences and the other frees, and with MPI_ERR_ASSERT if only one of the two gave an assertion that all or none must
// give.
Status check_agreement(int rank, std::uint8_t flags, int other_rank, std::uint8_t other_flags) {
  if ((other_flags & BarrierWord::kFailed) != 0) {
    return Error{ErrorKind::kPeer,
                 fmt::format("rank {}, which releases this rank from the barrier of its node, could not "
                             "notify some rank; an error of a rank of this node names it",
                             other_rank)};
  }
  const unsigned differs =
      static_cast<unsigned>(flags ^ other_flags) & ~unsigned{BarrierWord::kNoPut | BarrierWord::kIncomplete};
  if (differs == 0) return {};
  const auto who = [&](std::uint8_t bit) {
    return (flags & bit) != 0 ? std::pair(rank, other_rank) : std::pair(other_rank, rank);
  };
  if ((differs & BarrierWord::kFree) != 0) {
    const auto [frees, fences] = who(BarrierWord::kFree);
    return Fault{
        MPI_ERR_RMA_SYNC,
        fmt::format("rank {} is in MPI_Win_free, but rank {} in MPI_Win_fence; make the same collective calls on "
                    "all processes (MPI 4.0 section 12.2.5)",
                    frees, fences)};
  }
  const bool succeed = (differs & BarrierWord::kNoSucceed) != 0;
  const auto [gave, did_not] = who(succeed ? BarrierWord::kNoSucceed : BarrierWord::kNoPrecede);
  return Fault{
      MPI_ERR_ASSERT,
      fmt::format("MPI_MODE_{} was given to this fence by rank {} but not by rank {}; give it on all processes "
                  "or on none (MPI 4.0 section 12.5.5)",
                  succeed ? "NOSUCCEED" : "NOPRECEDE", gave, did_not)};
}

}  // namespace

std::span<const int> ActiveTarget::kept(std::span<const int> group, std::vector<int>& copy) const {
  if (!window_.threaded()) return group;
  copy.assign(group.begin(), group.end());
  return copy;
}

Status ActiveTarget::members_of(MPI_Group group, const KnownGroup& known, std::vector<int>& own,
                                std::span<const int>& members) {
  {
    const auto held = window_.guard();
    if (known.is(group)) {
      const bool posts = &known == &window_.last_posted;
      members = kept(posts ? window_.epoch.exposure().group : window_.epoch.started_group(), own);
      return {};
    }
  }
  if (group == MPI_GROUP_NULL) {
    return Fault{MPI_ERR_GROUP,
                 "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY or a part of the window's group "
                 "(MPI 4.0 section 12.5.2)"};
  }
  int size = 0;
  if (runtime().Group_size(group, &size) != MPI_SUCCESS) return no_group();
  std::vector<int> theirs(static_cast<std::size_t>(size));
  std::iota(theirs.begin(), theirs.end(), 0);
  own.resize(theirs.size());
  if (runtime().Group_translate_ranks(group, size, theirs.data(), window_.group, own.data()) != MPI_SUCCESS)
    return no_group();
  members = own;
  const auto stranger = std::ranges::find(members, MPI_UNDEFINED);
  if (stranger == members.end()) return {};
  return Fault{MPI_ERR_GROUP,
               fmt::format("member {} of the group is not in the window's group; make it from that group "
                           "(MPI 4.0 section 12.5.2)",
                           stranger - members.begin())};
}

// Notifies all members of a group, and waits until the notifications were sent.
Status ActiveTarget::notify(What what, std::span<const int> members) {
  const int self = window_.space->rank();
  if (!window_.space->words().all_immediate()) {
    // Some members cannot be left out. Without memory the constructor has notified none.
    std::optional<epochs::Notify<ControlMemory>> notification;
    patiently([&] { notification.emplace(window_.control, self, what, members); });
    return run(window_.space->words().wake_event(), *notification);
  }
  const auto notification = epochs::Notify<ControlMemory>::notification_of(self, what);
  for (const int member : members) window_.control.notify_now(member, notification.word, notification.added);
  if (!members.empty()) this_thread.stores.drained_by_atomic();
  return {};
}

Status ActiveTarget::run_barrier(std::uint64_t word) {
  const int rank = window_.space->rank();
  const std::uint8_t flags = epochs::BarrierWord::current_flags(word);
  const std::uint32_t before = std::exchange(window_.interruptions_at_barrier, window_.control.interruptions());
  epochs::Barrier<ControlMemory> barrier(window_.control, *window_.barrier_schedule, word, before);
  LossTimeout timeout;
  ControlMemory::Operation* failed = nullptr;
  bool over = false;
  const auto reason =
      wait_reason(window_, [&](WaitReports& reports) { return reports.awaited_in_barrier(barrier.awaits(), word); });
  wait_until(window_.space->words().wake_event(), [&] {
    over = barrier.advance();
    if (!over && timeout.is_expired(barrier.awaits_lost())) barrier.abandon();
    return over || (failed = barrier.failed_operation()) != nullptr || barrier.abandoned();
  });
  Status status;
  if (!over) status = failed != nullptr ? failed->take_error() : Status(timeout.error());
  window_.space->finish_puts();
  window_.barrier_word = barrier.word();  // for ranks that are still in this barrier
  if (!status) {
    window_.barrier_word |= BarrierWord::kFailed;
    return status;
  }
  Status agreed;
  const auto held = window_.guard();
  if ((flags & epochs::BarrierWord::kNoPut) != 0) window_.epoch.asserted_no_put(rank);
  for (std::size_t i = 0; i < barrier.steps().size(); ++i) {
    const int peer = barrier.steps()[i].from;
    const std::uint8_t received_flags = barrier.received_flags(i);
    if (peer < 0) continue;
    if ((received_flags & epochs::BarrierWord::kNoPut) != 0) window_.epoch.asserted_no_put(peer);
    if (agreed && received_flags != flags) agreed = check_agreement(rank, flags, peer, received_flags);
  }
  if (!agreed && class_of(agreed.error()) == MPI_ERR_ASSERT && window_.report_broken)
    window_.warn(std::exchange(agreed, {}).error());
  if (agreed && ((barrier.word() & ~word) & BarrierWord::kIncomplete) != 0)
    return incomplete(BarrierWord::rank(barrier.word()));
  return agreed;
}

Status ActiveTarget::fence(int assert) {
  if (Status o = window_.check_assert(assert, kFenceAsserts, "MPI_MODE_NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED"); !o)
    return o;
  if (Status o = window_.allow([&](epochs::EpochState& epoch) { return epoch.fence(assert_of_fence(assert)); }); !o)
    return o;
  Status checked;
  if (window_.locks.has_deferred())
    checked = PassiveTarget(window_).acquire_deferred_lock();  // FARSIDE_CHECK=warn: a fence beside locks
  // The barrier is entered after a failed operation as well, because the other ranks wait in it.
  Status completed = window_.space->queued_puts().release();
  // The word of the barrier carries the operations that are kept for the only peer. They are complete there before the
  // peer leaves the barrier, and this rank needs no acknowledgement.
  const int peer = window_.strict == nullptr ? window_.space->only_peer() : -1;
  const bool carried = peer >= 0;
  completed.keep(carried ? window_.space->route(peer).order_before_release(peer) : window_.space->flush_all());
  Status agreed = barrier(flags_of_fence(assert), lost(completed));
  if (carried) {
    completed.keep(window_.space->flush_all());
    if ((assert& MPI_MODE_NOSUCCEED) == 0) window_.space->route(peer).expect_release(peer);
  }
  return first_of(first_of(completed, std::move(agreed)), std::move(checked));
}

Status ActiveTarget::post(MPI_Group group, int assert) {
  constexpr int kAllowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
  if (Status o = window_.check_assert(assert, kAllowed, "MPI_MODE_NOCHECK, NOSTORE, NOPUT"); !o) return o;
  std::vector<int> own;
  std::span<const int> origins;
  if (Status o = members_of(group, window_.last_posted, own, origins); !o) return o;
  if (window_.completions.abandoned() && !origins.empty()) {
    return Fault{
        MPI_ERR_OTHER,
        "an earlier exposure of this window ended with the loss of a connection, and completes of it may still "
        "arrive, as if they were of this one; post in another window"};
  }
  {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.begin_post(origins)) return fault_of(v);
    if (origins.empty()) return {};
    window_.last_posted.set(group);
    // An origin completes after this post, also with MPI_MODE_NOCHECK.
    window_.interruptions_at_post = window_.control.interruptions();
    window_.wait_timeout = {};
  }
  // Locks of this rank find the mark in its lock word.
  if (window_.marks_exposure && !Mark::set(window_.control)) {
    // A rank may be about to release its lock, so a second attempt precedes the error.
    Process::instance().poll_now();
    std::this_thread::yield();
    if (!Mark::set(window_.control)) {
      const auto held = window_.guard();
      if (!window_.report_broken) {
        window_.epoch.refused(epochs::Call::kPost);
        return fault_of(kLockedWhilePosted);
      }
      // Else reported already.
      if (window_.epoch.access() < epochs::Access::kLockingAll) window_.warn(fault_of(kLockedWhilePosted));
      Mark::set_beside_locks(window_.control);
    }
  }
  // With MPI_MODE_NOCHECK the origins do not wait for this post.
  const What notification = (assert& MPI_MODE_NOPUT) != 0 ? What::kPostedNoPut : What::kPosted;
  Status notified;
  if ((assert& MPI_MODE_NOCHECK) == 0) notified = without_bad_alloc([&] { return notify(notification, origins); });
  const auto held = window_.guard();
  // Some origins may have been notified, so the window is exposed. Those that were not send no complete. The cause may
  // be an interruption before this post, so MPI_Win_wait and MPI_Win_test consider all interruptions.
  if (!notified) window_.interruptions_at_post = window_.control.first_interruptions();
  window_.epoch.opened(epochs::Call::kPost);
  return notified;
}

Status ActiveTarget::start(MPI_Group group, int assert) {
  if (Status o = window_.check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  std::vector<int> own;
  std::span<const int> targets;
  if (Status o = members_of(group, window_.last_started, own, targets); !o) return o;
  std::vector<int> no_put;
  if ((assert& MPI_MODE_NOCHECK) == 0) no_put.reserve(targets.size());
  {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.begin_start(targets)) return fault_of(v);
    if (targets.empty()) return {};
    window_.last_started.set(group);
  }
  if (window_.locks.has_deferred()) {  // FARSIDE_CHECK=warn: a start beside locks
    if (Status o = PassiveTarget(window_).acquire_deferred_lock(); !o) {
      const auto held = window_.guard();
      window_.epoch.refused(epochs::Call::kStart);
      return o;
    }
  }
  for (const int target : targets) window_.space->route(target).expect_release(target);
  if ((assert& MPI_MODE_NOCHECK) == 0) {
    epochs::AwaitPosts<ControlMemory> posts(window_.control, targets, &no_put);
    LossTimeout timeout;
    bool over = false;
    const auto reason =
        wait_reason(window_, [&](WaitReports& reports) { return reports.awaited_posts(posts.missing()); });
    wait_until(window_.space->words().wake_event(), [&] {
      over = posts.advance();
      return over ||
             timeout.is_expired(posts.first_missing([&](int target) { return window_.control.may_lack_post(target); }));
    });
    if (!over) {
      const auto held = window_.guard();
      window_.epoch.refused(epochs::Call::kStart);
      return Status(timeout.error());
    }
  }
  // A target has posted after the end of its last exposure to this rank.
  for (const int target : targets) {
    if (FabricControl* const route = window_.control.route()) route->post_received(target);
  }
  const auto held = window_.guard();
  for (const int target : no_put) window_.epoch.asserted_no_put(target);
  window_.epoch.opened(epochs::Call::kStart);
  return {};
}

Status ActiveTarget::complete() {
  std::span<const int> targets;
  std::vector<int> own;
  bool started = false;
  {
    const auto held = window_.guard();
    started = window_.epoch.started();
    targets = kept(window_.epoch.started_group(), own);
    if (const epochs::Violation v = window_.epoch.complete()) return fault_of(v);
  }
  if (!started) return window_.space->flush_all();  // no rank is to be notified
  // The data must take effect before the notification does. This waits for operations that the notification would
  // overtake.
  Status first = window_.space->queued_puts().release();
  const bool immediate = window_.space->words().all_immediate();
  for (const int target : targets) {
    Status before = immediate ? Status() : window_.space->route(target).order_before_release(target);
    if (lost(before) || (lost(first) && first.error().rank == target))
      window_.control.write_unawaited(target, ControlBlock::kIncomplete,
                                      static_cast<unsigned>(window_.space->rank()) + 1);
    first.keep(std::move(before));
  }
  first.keep(without_bad_alloc([&] { return notify(What::kCompleted, targets); }));
  for (const int target : targets) {
    if (!immediate) first.keep(window_.space->route(target).flush(target));
  }
  return first;
}

Status ActiveTarget::wait() {
  std::size_t origins = 0;
  {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.begin_wait()) return fault_of(v);
    if (window_.epoch.exposure().state != epochs::Exposure::kWaiting) return {};
    origins = window_.epoch.exposure().group.size();
  }
  Status lost;
  bool over = false;
  const auto reason = wait_reason(window_, [](WaitReports& reports) { return reports.awaited_completes(); });
  wait_until(window_.space->words().wake_event(), [&] {
    over = window_.completions.take(window_.control, origins);
    if (over || (lost = complete_lost())) return over;
    // Completions that arrived before the interruption count.
    over = window_.completions.take(window_.control, origins);
    return true;
  });
  if (!over) window_.completions.abandon();
  Status ended = end_exposure(epochs::Call::kWait);
  return over ? std::move(ended) : Status(std::move(lost));
}

// Returns an error if the connection of a posted origin was interrupted after the post, its complete has not arrived,
// and window_.wait_timeout has expired. The post may be lost as well.
Status ActiveTarget::complete_lost() {
  if (window_.control.interruptions() == window_.interruptions_at_post) [[likely]]
    return {};
  const auto held = window_.guard();
  const int origin = window_.control.first_interrupted(window_.epoch.exposure().group, window_.interruptions_at_post);
  return window_.wait_timeout.is_expired(origin) ? Status(window_.wait_timeout.error()) : Status();
}

Status ActiveTarget::end_exposure(epochs::Call call) {
  window_.space->finish_puts();
  if (window_.marks_exposure) Mark::clear(window_.control);
  const std::uint64_t origin = window_.control.own(ControlBlock::kIncomplete);
  if (origin != 0) window_.control.own_fetch_add(ControlBlock::kIncomplete, -origin);
  const auto held = window_.guard();
  window_.epoch.exposure_ended(call);
  return origin != 0 ? incomplete(origin - 1) : Status();
}

Status ActiveTarget::test(int* flag) {
  *flag = 0;
  // A program that calls nothing but MPI_Win_test must still make progress.
  Process::instance().poll_now();
  Process::instance().poll_runtime();
  std::size_t origins = 0;
  bool completed = false;
  {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.test()) return fault_of(v);
    if (window_.epoch.exposure().state != epochs::Exposure::kPosted) {
      *flag = 1;
      return status_of(window_.epoch.begin_wait());
    }
    origins = window_.epoch.exposure().group.size();
    completed = window_.completions.take(window_.control, origins);
    if (completed) {
      if (const epochs::Violation v = window_.epoch.begin_wait()) return fault_of(v);
    }
  }
  if (!completed) {
    Status lost = complete_lost();
    // If the completes have arrived meanwhile, the next test is true.
    return window_.completions.missing(window_.control, origins) == 0 ? Status() : std::move(lost);
  }
  *flag = 1;
  return end_exposure(epochs::Call::kTest);
}

}  // namespace farside::pmpi
