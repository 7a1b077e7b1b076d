// SPDX-License-Identifier: BSD-3-Clause
// Active target synchronization of a window (MPI 4.0 sections 12.5.1 and 12.5.2), and the barrier of fence and free.
// Each function without try_ is one MPI call: it checks the arguments, asks the epoch state, acts, and returns an
// Status. The try_ functions are fast paths, among ranks of the node.
//
// Cost in remote operations: epochs/synchronization.md. Thread safety: that of WindowState.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <mpi.h>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/exposure.hpp"
#include "pmpi/window/window_state.hpp"
#include "transport/base/timing.hpp"

namespace farside::pmpi {

class ActiveTarget {
 public:
  explicit ActiveTarget(WindowState& window) : window_(window) {}

  // Precondition of the fast paths: notifies_fast(). They are static, since they are not inlined: the entry point
  // need not put the view into memory. A fence without assertions; kContended: it is not over, and run_barrier()
  // with `word` waits for its end.
  static FastPath try_fence(WindowState& window, int assert, std::uint64_t& word);
  Status run_barrier(std::uint64_t word);
  // Post, start, complete and wait with one peer, the same as in the last epoch of that kind. Start and wait spin for
  // about a microsecond.
  static bool try_post(WindowState& window, MPI_Group group, int assert);
  static bool try_start(WindowState& window, MPI_Group group, int assert);
  static bool try_complete(WindowState& window);
  static bool try_wait(WindowState& window);

  Status fence(int assert);
  Status post(MPI_Group group, int assert);
  Status start(MPI_Group group, int assert);
  Status complete();
  Status wait();
  Status test(int* flag);
  static constexpr int kFenceAsserts = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
  static epochs::FenceAssert assert_of_fence(int assert) {
    return {(assert& MPI_MODE_NOPRECEDE) != 0, (assert& MPI_MODE_NOSUCCEED) != 0};
  }
  // A barrier that exchanges flags of the call (epochs::BarrierWord). A fault if they differ between ranks, or if
  // operations of another rank are `incomplete`.
  Status barrier(std::uint8_t flags, bool incomplete = false) {
    const std::uint64_t word = enter_barrier(window_, flags);
    const auto rank = static_cast<std::uint64_t>(window_.space->rank());
    return run_barrier(incomplete ? epochs::BarrierWord::with_incomplete(word, rank) : word);
  }

 private:
  using What = epochs::Notify<ControlMemory>::What;

  // The first step of barrier(): the word that the peers read. run_barrier() is the second.
  static std::uint64_t enter_barrier(WindowState& window, std::uint8_t flags) {
    return window.barrier_word = epochs::BarrierWord::next(window.barrier_word, flags);
  }
  Status end_exposure(epochs::Call call);
  Status complete_lost();
  // The members of the group of a start or post, in the epoch state if it is the last one again, else in `own`.
  Status members_of(MPI_Group group, const KnownGroup& known, std::vector<int>& own, std::span<const int>& members);
  // A group of the epoch state, which other threads may replace behind the guard: they get a copy of it.
  std::span<const int> kept(std::span<const int> group, std::vector<int>& copy) const;
  Status notify(What what, std::span<const int> members);

  WindowState& window_;
};

// Spins for the time of some hand-offs between two cores, without progress of the endpoint or the runtime, until
// probe() returns kDone or kNotTaken. Returns that, or kContended if the time is over.
template <class Probe>
FastPath spin_briefly(Probe&& probe) {
  for (int probes = 0;; ++probes) {
    const FastPath result = probe();
    if (result != FastPath::kContended || probes == Timing::kSpins) return result;
    relax();
  }
}

// The only member of the last group of a start or post, if `group` is that one again; else MPI_UNDEFINED.
inline int only_member(MPI_Group group, const KnownGroup& known, std::span<const int> last) {
  return known.is(group) && last.size() == 1 ? last.front() : MPI_UNDEFINED;
}

inline FastPath ActiveTarget::try_fence(WindowState& window, int assert, std::uint64_t& word) {
  using epochs::BarrierWord, epochs::ControlBlock;
  const int rank = window.space->rank(), ranks = window.space->ranks();
  if (assert != 0 || ranks == 1 || !window.release_puts()) return FastPath::kNotTaken;
  {
    const auto held = window.guard();
    if (!window.epoch.allows_fast(epochs::Call::kFence)) return FastPath::kNotTaken;
    window.epoch.pass_fast(epochs::Call::kFence);
    word = enter_barrier(window, 0);
  }
  for (int round = 0, distance = 1; distance < ranks; ++round, distance *= 2) {
    const std::uint32_t at = ControlBlock::barrier_round(round);
    window.control.notify_by_write(rank + distance < ranks ? rank + distance : rank + distance - ranks, at, word);
    std::uint64_t seen = 0;
    const FastPath passed = spin_briefly([&] {
      seen = window.control.own(at);
      return BarrierWord::entered(seen, word) ? FastPath::kDone : FastPath::kContended;
    });
    if (passed != FastPath::kDone || BarrierWord::flags(seen, BarrierWord::count(word)) != 0)
      return FastPath::kContended;
  }
  this_thread.stores.drained_by_atomic();
  if (window.fast != Fast::kReleases) [[unlikely]]
    window.space->finish_puts();
  WindowState::progress_runtime();
  return FastPath::kDone;
}

inline bool ActiveTarget::try_post(WindowState& window, MPI_Group group, int assert) {
  using Notify = epochs::Notify<ControlMemory>;
  int origin = MPI_UNDEFINED;
  {
    const auto held = window.guard();
    origin = only_member(group, window.last_posted, window.epoch.exposure().group);
    if (assert != 0 || origin == MPI_UNDEFINED || !window.epoch.allows_fast(epochs::Call::kPost, origin)) return false;
    if (window.marks_exposure && !epochs::ExposureMark<ControlMemory>::set(window.control)) return false;
    window.epoch.pass_fast(epochs::Call::kPost);
  }
  const Notify::Notification notification = Notify::notification_of(window.space->rank(), Notify::What::kPosted);
  window.control.notify_now(origin, notification.word, notification.added);
  this_thread.stores.drained_by_atomic();
  return true;
}

inline bool ActiveTarget::try_start(WindowState& window, MPI_Group group, int assert) {
  using epochs::ControlBlock;
  // Each probe checks the epoch as well, since another thread may have started one meanwhile, and taken the post.
  return spin_briefly([&] {
           const auto held = window.guard();
           const int target = only_member(group, window.last_started, window.epoch.started_group());
           if (assert != 0 || target == MPI_UNDEFINED || !window.epoch.allows_fast(epochs::Call::kStart, target))
             return FastPath::kNotTaken;
           const std::uint32_t word = ControlBlock::posted_word(target);
           const std::uint64_t post = ControlBlock::posted_bit(target), no_put = ControlBlock::no_put_bit(target);
           const std::uint64_t posted = window.control.own(word) & (post | no_put);
           if (posted == 0) return FastPath::kContended;
           if (posted != post) return FastPath::kNotTaken;
           ControlWord::fetch_add(*window.space->words().own(word), -post);
           window.epoch.pass_fast(epochs::Call::kStart, target);
           return FastPath::kDone;
         }) == FastPath::kDone;
}

inline bool ActiveTarget::try_complete(WindowState& window) {
  if (!window.release_puts()) return false;
  int target = MPI_UNDEFINED;
  {
    const auto held = window.guard();
    if (!window.epoch.allows_fast(epochs::Call::kComplete)) return false;
    target = window.epoch.started_group().front();
    window.epoch.pass_fast(epochs::Call::kComplete);
  }
  window.control.notify_now(target, epochs::ControlBlock::kCompleted, 1);
  this_thread.stores.drained_by_atomic();
  WindowState::progress_runtime();
  return true;
}

inline bool ActiveTarget::try_wait(WindowState& window) {
  // Each probe checks the epoch as well, since another thread may have waited meanwhile.
  const FastPath ended = spin_briefly([&] {
    const auto held = window.guard();
    if (!window.epoch.allows_fast(epochs::Call::kWait)) return FastPath::kNotTaken;
    if (window.completions.missing(window.control, 1) != 0) return FastPath::kContended;
    if (window.control.own(epochs::ControlBlock::kIncomplete) != 0) [[unlikely]]
      return FastPath::kNotTaken;
    (void)window.completions.take(window.control, 1);
    if (window.marks_exposure) epochs::ExposureMark<ControlMemory>::clear(window.control);
    window.epoch.exposure_ended(epochs::Call::kWait);
    return FastPath::kDone;
  });
  if (ended != FastPath::kDone) return false;
  if (window.fast != Fast::kReleases) [[unlikely]]
    window.space->finish_puts();
  WindowState::progress_runtime();
  return true;
}

}  // namespace farside::pmpi
