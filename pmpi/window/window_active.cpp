// SPDX-License-Identifier: BSD-3-Clause
// Active target synchronization of a window (MPI 4.0 sections 12.5.1 and 12.5.2), and the barrier of fence and free.
#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/exposure.hpp"
#include "pmpi/check/collective_check.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/synchronization.hpp"
#include "pmpi/window/wait_reasons.hpp"
#include "pmpi/window/window.hpp"

namespace farside::pmpi {
namespace {

using epochs::HeldLock;
using What = epochs::Notify<ControlMemory>::What;
using Mark = epochs::ExposureMark<ControlMemory>;

// MPI 4.0 section 12.5.3: a window may not be locked and exposed at the same time.
constexpr epochs::Violation kLockedWhilePosted{
    epochs::ErrorClass::kRmaConflict, "post while the own window is locked by some rank",
    "post when all locks on this window were released", "MPI 4.0 section 12.5.3 (3.1: 11.5.3)", true};

Fault no_group() {
  return {MPI_ERR_GROUP, "the group is not valid, for instance because it was freed (MPI 4.0 section 12.5.2)"};
}

}  // namespace

Outcome Window::translate(MPI_Group group, Members& members) const {
  if (group == MPI_GROUP_NULL) {
    return Fault{MPI_ERR_GROUP,
                 "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY or a part of the window's group "
                 "(MPI 4.0 section 12.5.2)"};
  }
  int size = 0;
  if (runtime().Group_size(group, &size) != MPI_SUCCESS) return no_group();
  Members theirs(static_cast<std::size_t>(size));
  std::iota(theirs.ranks().begin(), theirs.ranks().end(), 0);
  members.resize(static_cast<std::size_t>(size));
  const std::span<int> ranks = members.ranks();
  const int code = runtime().Group_translate_ranks(group, size, theirs.ranks().data(), group_, ranks.data());
  if (code != MPI_SUCCESS) return no_group();
  const auto stranger = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED);
  if (stranger == ranks.end()) return {};
  return Fault{MPI_ERR_GROUP,
               fmt::format("member {} of the group is not in the window's group; make it from that group "
                           "(MPI 4.0 section 12.5.2)",
                           stranger - ranks.begin())};
}

Outcome Window::members_of(MPI_Group group, KnownGroup& known, Members& own, std::span<const int>& ranks) {
  // With threads another call may replace the cached group while this one uses the members.
  const auto take_known = [&] { ranks = threaded() ? own.copy(known.members()) : known.members(); };
  {
    const auto held = guard();
    if (known.is(group)) {
      take_known();
      return {};
    }
  }
  Members translated;
  if (Outcome o = translate(group, translated); !o) return o;
  const auto held = guard();
  known.set(group, translated.ranks());
  take_known();
  return {};
}

// Notifies all members of a group, and waits until the notifications were sent.
Status Window::notify(What what, std::span<const int> members) {
  const int self = space_->rank();
  if (!space_->all_immediate()) {
    // Some members cannot be left out. Without memory the constructor has notified none.
    std::optional<epochs::Notify<ControlMemory>> notification;
    patiently([&] { notification.emplace(control_, self, what, members); });
    return run(space_->wake_event(), *notification);
  }
  const auto notification = epochs::Notify<ControlMemory>::notification_of(self, what);
  for (const int member : members) control_.notify_now(member, notification.word, notification.added);
  if (!members.empty()) space_->stores_drained_by_atomic();
  return {};
}

Outcome Window::barrier(std::uint8_t flags) { return run_barrier(enter_barrier(flags)); }

Outcome Window::run_barrier(std::uint64_t word) {
  const int rank = space_->rank();
  const std::uint8_t flags = epochs::BarrierWord::current_flags(word);
  const std::uint32_t before = std::exchange(interruptions_at_barrier_, space_->interruptions());
  epochs::Barrier<ControlMemory> barrier(control_, *barrier_schedule_, word, before);
  LossTimeout timeout;
  ControlMemory::Operation* failed = nullptr;
  bool over = false;
  const WaitReason reason(*this,
                          [&] { return awaited_in_barrier(barrier.awaits(), epochs::BarrierWord::count(word)); });
  wait_until(space_->wake_event(), [&] {
    over = barrier.advance();
    if (!over && timeout.is_expired(barrier.awaits_lost())) barrier.abandon();
    return over || (failed = barrier.failed_operation()) != nullptr || barrier.abandoned();
  });
  Status status;
  if (!over) status = failed != nullptr ? failed->take_error() : Status(timeout.error());
  space_->finish_puts();
  if (!status) {
    barrier_flags_ |= epochs::BarrierWord::kFailed;  // for ranks that are still in this barrier
    return status;
  }
  Outcome agreed;
  const auto held = guard();
  if ((flags & epochs::BarrierWord::kNoPut) != 0) epoch_.asserted_no_put(rank);
  for (std::size_t i = 0; i < barrier.steps().size(); ++i) {
    const int peer = barrier.steps()[i].from;
    const std::uint8_t received_flags = barrier.received_flags(i);
    if (peer < 0) continue;
    if ((received_flags & epochs::BarrierWord::kNoPut) != 0) epoch_.asserted_no_put(peer);
    if (agreed && received_flags != flags) agreed = check_agreement(rank, flags, peer, received_flags);
  }
  return agreed;
}

Outcome Window::fence(int assert) {
  return counted(
      [&] { return do_fence(assert); },
      [&](const WindowStatistics::Moment& begun) { statistics_->fenced(begun, (assert& MPI_MODE_NOSUCCEED) != 0); });
}

Outcome Window::post(MPI_Group group, int assert) {
  return counted([&] { return do_post(group, assert); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->posted(begun); });
}

Outcome Window::start(MPI_Group group, int assert) {
  return counted([&] { return do_start(group, assert); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->started(begun); });
}

Outcome Window::complete() {
  return counted([&] { return do_complete(); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->completed(begun); });
}

Outcome Window::wait() {
  return counted([&] { return do_wait(); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->exposure_ended(begun); });
}

Outcome Window::do_fence(int assert) {
  constexpr int kAllowed = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
  if (Outcome o = check_assert(assert, kAllowed, "MPI_MODE_NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED"); !o) return o;
  {
    const auto held = guard();
    const epochs::FenceAssert given{(assert& MPI_MODE_NOPRECEDE) != 0, (assert& MPI_MODE_NOSUCCEED) != 0,
                                    (assert& MPI_MODE_NOSTORE) != 0, (assert& MPI_MODE_NOPUT) != 0};
    if (const epochs::Violation v = epoch_.fence(given)) return v;
  }
  Outcome checked;
  if (locks_.has_deferred()) checked = acquire_deferred_lock();  // FARSIDE_CHECK=warn: a fence beside locks
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->fence_reached(); });
  // The barrier is entered after a failed operation as well, because the other ranks wait in it.
  Status completed = space_->release_puts();
  const auto keep = [&completed](Status status) {
    if (completed) completed = std::move(status);
  };
  // The word of the barrier carries the operations that are kept for the only peer. They are complete there before the
  // peer leaves the barrier, and this rank needs no acknowledgement.
  const int peer = strict_ == nullptr ? space_->only_peer() : -1;
  const bool carried = peer >= 0;
  keep(carried ? space_->order_before_release(peer) : space_->flush_all());
  Outcome agreed = barrier(flags_of_fence(assert));
  if (carried) {
    keep(space_->flush_all());
    if ((assert& MPI_MODE_NOSUCCEED) == 0) space_->expect_release(peer);
  }
  if (strict_) [[unlikely]]
    strict_->fence_passed((assert& MPI_MODE_NOSUCCEED) == 0);
  return first_of(first_of(completed, std::move(agreed)), std::move(checked));
}

Outcome Window::mark_exposed() { return Mark::set(control_) ? Outcome() : Outcome(kLockedWhilePosted); }

Outcome Window::do_post(MPI_Group group, int assert) {
  constexpr int kAllowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
  if (Outcome o = check_assert(assert, kAllowed, "MPI_MODE_NOCHECK, NOSTORE, NOPUT"); !o) return o;
  Members own;
  std::span<const int> origins;
  if (Outcome o = members_of(group, last_posted_, own, origins); !o) return o;
  if (completions_.abandoned() && !origins.empty()) {
    return Fault{
        MPI_ERR_OTHER,
        "an earlier exposure of this window ended with the loss of a connection, and completes of it may still "
        "arrive, as if they were of this one; post in another window"};
  }
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_post(origins)) return v;
    if (origins.empty()) return {};
    // An origin completes after this post, also with MPI_MODE_NOCHECK.
    interruptions_at_post_ = space_->interruptions();
    wait_timeout_ = {};
  }
  if (marks_exposure_) {
    Outcome exposed = mark_exposed();
    if (!exposed) {
      // A rank may be about to release its lock, so a second attempt precedes the error.
      Process::instance().poll_now();
      std::this_thread::yield();
      exposed = mark_exposed();
    }
    if (!exposed) {
      const auto held = guard();
      if (!report_broken_) {
        epoch_.post_refused();
        return exposed;
      }
      if (epoch_.access() < epochs::Access::kLockingAll) warn(exposed.fault());  // else reported already
      Mark::set_beside_locks(control_);
    }
  }
  // With MPI_MODE_NOCHECK the origins do not wait for this post.
  const What notification = (assert& MPI_MODE_NOPUT) != 0 ? What::kPostedNoPut : What::kPosted;
  Status notified;
  if ((assert& MPI_MODE_NOCHECK) == 0) notified = without_bad_alloc([&] { return notify(notification, origins); });
  const auto held = guard();
  // Some origins may have been notified, so the window is exposed. Those that were not send no complete. The cause may
  // be an interruption before this post, so MPI_Win_wait and MPI_Win_test consider all interruptions.
  if (!notified) interruptions_at_post_ = space_->first_interruptions();
  epoch_.post_notified();
  return notified;
}

Outcome Window::do_start(MPI_Group group, int assert) {
  if (Outcome o = check_assert(assert, MPI_MODE_NOCHECK, "MPI_MODE_NOCHECK"); !o) return o;
  Members own;
  std::span<const int> targets;
  if (Outcome o = members_of(group, last_started_, own, targets); !o) return o;
  std::vector<int> no_put;
  if ((assert& MPI_MODE_NOCHECK) == 0) no_put.reserve(targets.size());
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_start(targets)) return v;
    if (targets.empty()) return {};
  }
  if (locks_.has_deferred()) {  // FARSIDE_CHECK=warn: a start beside locks
    if (Outcome o = acquire_deferred_lock(); !o) return o;
  }
  for (const int target : targets) space_->expect_release(target);
  if ((assert& MPI_MODE_NOCHECK) == 0) {
    epochs::AwaitPosts<ControlMemory> posts(control_, targets, &no_put);
    LossTimeout timeout;
    bool over = false;
    const WaitReason reason(*this, [&] { return awaited_posts(posts.missing()); });
    wait_until(space_->wake_event(), [&] {
      over = posts.advance();
      return over || timeout.is_expired(
                         posts.first_missing([&](int target) { return space_->interrupted_since_post(target); }));
    });
    if (!over) {
      const auto held = guard();
      epoch_.start_refused();
      return Status(timeout.error());
    }
  }
  // A target has posted after the end of its last exposure to this rank.
  for (const int target : targets) space_->post_received(target);
  const auto held = guard();
  for (const int target : no_put) epoch_.asserted_no_put(target);
  epoch_.start_ready();
  return {};
}

Outcome Window::do_complete() {
  std::span<const int> targets;
  Members own;
  bool started = false;
  {
    const auto held = guard();
    started = epoch_.started();
    targets = epoch_.started_group();
    // Another thread may start the next epoch before all targets are notified.
    if (threaded()) targets = own.copy(targets);
    if (const epochs::Violation v = epoch_.complete()) return v;
  }
  if (!started) return space_->flush_all();  // no rank is to be notified
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->start_completed(); });
  // The data must take effect before the notification does. This waits for operations that the notification would
  // overtake.
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  keep(space_->release_puts());
  const bool immediate = space_->all_immediate();
  for (const int target : targets) {
    if (!immediate) keep(space_->order_before_release(target));
  }
  keep(without_bad_alloc([&] { return notify(What::kCompleted, targets); }));
  for (const int target : targets) {
    if (!immediate) keep(space_->flush(target));
  }
  return first_of(first, std::move(checked));
}

Outcome Window::do_wait() {
  std::size_t origins = 0;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.begin_wait()) return v;
    if (epoch_.exposure() != epochs::Exposure::kWaiting) return {};
    origins = epoch_.posted_group().size();
  }
  Status lost;
  bool over = false;
  const WaitReason reason(*this, [&] {
    Members of_post;
    std::span<const int> posted;
    {
      const auto held = guard();
      posted = of_post.copy(epoch_.posted_group());
    }
    return awaited_completes(completions_.missing(control_, origins), posted);
  });
  wait_until(space_->wake_event(), [&] {
    over = completions_.take(control_, origins);
    if (over || (lost = complete_lost())) return over;
    // What has arrived before the interruption is seen now.
    over = completions_.take(control_, origins);
    return true;
  });
  if (!over) completions_.abandon();
  Outcome ended = end_exposure(epochs::Call::kWait);
  return over ? std::move(ended) : first_of(std::move(lost), std::move(ended));
}

// Returns an error if the connection of a posted origin was interrupted after the post, its complete has not arrived,
// and wait_timeout_ has expired. The post may be lost as well.
Status Window::complete_lost() {
  if (space_->interruptions() == interruptions_at_post_) [[likely]]
    return {};
  const auto held = guard();
  for (const int origin : epoch_.posted_group()) {
    if (!space_->interrupted_since(origin, interruptions_at_post_)) continue;
    return wait_timeout_.is_expired(origin) ? Status(wait_timeout_.error()) : Status();
  }
  return {};
}

Outcome Window::end_exposure(epochs::Call call) {
  space_->finish_puts();
  Outcome checked;
  if (strict_) [[unlikely]]
    checked = without_bad_alloc([&] { return strict_->exposure_ended(); });
  if (marks_exposure_) Mark::clear(control_);
  const auto held = guard();
  epoch_.exposure_ended(call);
  return checked;
}

Outcome Window::test(int* flag) {
  *flag = 0;
  // A program that calls nothing but MPI_Win_test must still make progress.
  Process::instance().poll_now();
  Process::instance().poll_runtime();
  std::size_t origins = 0;
  bool completed = false;
  {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.test()) return v;
    if (epoch_.exposure() != epochs::Exposure::kPosted) {
      *flag = 1;
      return epoch_.begin_wait();
    }
    origins = epoch_.posted_group().size();
    completed = completions_.take(control_, origins);
    if (completed) {
      if (const epochs::Violation v = epoch_.begin_wait()) return v;
    }
  }
  if (!completed) {
    Status lost = complete_lost();
    // If the completes have arrived meanwhile, the next test is true.
    return completions_.arrived(control_, origins) ? Status() : std::move(lost);
  }
  *flag = 1;
  return counted([&] { return end_exposure(epochs::Call::kTest); },
                 [&](const WindowStatistics::Moment& begun) { statistics_->exposure_ended(begun); });
}

Outcome Window::check_free() {
  const auto held = guard();
  return epoch_.free();
}

// Ends the epochs that FARSIDE_CHECK=warn lets MPI_Win_free find open, because other ranks may wait for that.
Outcome Window::end_epochs() {
  Outcome first;
  if (epoch_.started()) first = do_complete();
  while (!locks_.locks().empty()) {
    HeldLock lock;
    first = first_of(std::move(first), unlock_slow(locks_.locks().back().target, lock));
  }
  while (epoch_.access() == epochs::Access::kLockedAll) first = first_of(std::move(first), do_unlock_all());
  return first;
}

Outcome Window::end() {
  Outcome ended = end_epochs();
  Status completed = space_->flush_all();
  wait_until(space_->wake_event(), [&] { return control_.posts_done(); });
  if (completed) completed = control_.take_post_error();
  Outcome agreed = barrier(epochs::BarrierWord::kFree);
  return first_of(first_of(std::move(ended), completed), std::move(agreed));
}

}  // namespace farside::pmpi
