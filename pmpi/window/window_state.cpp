// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/window_state.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "pmpi/check/broken_rules.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/timing.hpp"

namespace farside::pmpi {

WindowState::WindowState(MPI_Group of, std::unique_ptr<Space> memory,
                         std::shared_ptr<const epochs::BarrierSchedule> schedule, int global_lock_home, bool threaded,
                         Check check)
    : space(std::move(memory)),
      control(*space),
      fast_path(check != Check::kStrict),
      fast_locks(fast_path),
      fast_releases(fast_path && !space->may_queue_puts()),
      fast_notifications(fast_path && space->words().all_immediate()),
      trusts_locks(!threaded && (check == Check::kOn || check == Check::kStrict)),
      fast_targets(fast_path ? space->consecutive_targets() : std::span<const NodeTarget>()),
      epoch(space->ranks()),
      locks(space->rank(), space->ranks(), global_lock_home),
      dead_ranks(*space, control),
      marks_exposure(check != Check::kOff),
      barrier_schedule(std::move(schedule)),
      interruptions_at_barrier(control.first_interruptions()),
      group(of) {
  locks.locks() =
      WindowLocks::Locks(HeldLocksMemory<epochs::HeldLock>(space->words().own(epochs::ControlBlock::kHeld)));
  locks.locks().reserve(epochs::ControlBlock::kHeldLocks);
  locks.mutex().threaded = threaded;
  if (check == Check::kOff) epoch.report_only();
  if (check == Check::kWarn) {
    report_broken = [this](const epochs::Violation& broken, int /*target*/) { warn(fault_of(broken)); };
    epoch.report_only(report_broken);
  }
}

WindowState::~WindowState() {
  if (library().deferring == this) library().deferring = nullptr;
  runtime().Group_free(&group);
}

void WindowState::close_stripes() {
  const bool taken = lock_stripes->close([this](const epochs::HeldLock& lock) {
    (void)epoch.lock(lock.target, lock.type);
    locks.locks().push_back(lock);
  });
  if (taken) epoch.locked_meanwhile();
}

std::string WindowState::describe_name() const { return name != nullptr ? *name : "(unnamed)"; }

void WindowState::warn(const Fault& fault) const { library().broken_rules->report(describe_name(), fault.text); }

Outcome WindowState::check_assert(int assert, int allowed_bits, const char* allowed) {
  if ((assert & ~allowed_bits) == 0) return {};
  Fault fault{MPI_ERR_ASSERT,
              fmt::format("assertion {:#x} is not one of this call; allowed: {} (MPI 4.0 section 12.5.5){}", assert,
                          allowed, report_broken ? "" : kCarriedWithWarn)};
  if (!report_broken) return fault;
  const auto held = guard();
  warn(fault);
  return {};
}

Outcome WindowState::check_rank(int rank) const {
  if (rank >= 0 && rank < space->ranks()) return {};
  return Fault{MPI_ERR_RANK, fmt::format("rank {} is not in the window's group of {}; use 0 to {} or MPI_PROC_NULL "
                                         "(MPI 4.0 section 12.3)",
                                         rank, space->ranks(), space->ranks() - 1)};
}

// The runtime's progress engine takes more time with more ranks, and so does the pause after a call of it.
void WindowState::progress_runtime_now() {
  std::atomic<Ticks>&last = library().runtime_moved, &pause = library().runtime_pause;
  const Ticks begun = ticks();
  if (begun - last.load(std::memory_order_relaxed) < pause.load(std::memory_order_relaxed)) return;
  Process::instance().poll_runtime();
  const Ticks end = ticks();
  last.store(end, std::memory_order_relaxed);
  pause.store(
      std::clamp(Timing::kRuntimePause * (end - begun), Timing::kShortestRuntimePause, Timing::kLongestRuntimePause),
      std::memory_order_relaxed);
}

}  // namespace farside::pmpi
