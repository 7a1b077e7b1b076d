// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/progress_thread.hpp"

#include <poll.h>

#include "transport/handler/memory_fault.hpp"

namespace farside {

// Leaves the thread's work to application threads for a while, if they poll. Returns whether it has.
bool ProgressThread::back_off_for(AdaptivePolling& polling, Work& work) {
  const Clock::time_point now = Clock::now();
  // A poll that moves a large transfer may have begun before the last call of this.
  const bool polled = polled_ || work.endpoint_is_busy();
  polled_ = false;
  bool needed = listening_.armed();
  if (!needed && polled && polling.probe_is_due(now)) {
    needed = !taken_;
    taken_ = false;
    if (!needed) polling.runtime_serves_on(now);
  }
  std::optional<std::chrono::microseconds> back_off;
  if (needed)
    polling.end();
  else
    back_off = polling.next(polled, now);
  runtime_serves_.store(polling.runtime_serves(), std::memory_order_relaxed);
  if (back_off) rest(*back_off);
  return back_off.has_value();
}

// Without memory the thread tries again.
void ProgressThread::run(Work& work, int queue_fd) {
  BiasedMutex::this_thread_never_owns();
  const MemoryFault::Reported reported;
  while (!stop_.load(std::memory_order_acquire)) {
    if (!without_bad_alloc([&] { work_until_stopped(work, queue_fd); })) std::this_thread::sleep_for(Timing::kTryAgain);
  }
}

void ProgressThread::work_until_stopped(Work& work, int queue_fd) {
  AdaptivePolling polling;
  bool something_came = false, connection_woke = false;
  Clock::time_point read_events_at{}, forgot_polls{};
  Clock::time_point check_again = Clock::now() + Timing::kSafetyNet;
  while (!stop_.load(std::memory_order_acquire)) {
    if (Clock::now() >= check_again) {
      work.check();
      check_again = Clock::now() + Timing::kSafetyNet;
    }
    if (back_off_for(polling, work)) {
      if (Clock::now() >= read_events_at) {
        work.read_connection_events();
        read_events_at = Clock::now() + Timing::kReadEventsEvery;
      }
      continue;
    }
    const Clock::time_point begin = Clock::now();
    if (begin - forgot_polls >= Timing::kRecentPoll) {
      runtime_polled_ = false;
      forgot_polls = begin;
    }
    const Work::Sleep sleep = work.progress(connection_woke);
    // Wakes also if nothing completed here: a peer may have written into this process's memory.
    wake_listeners();
    // This makes progress as well, which may take as long, and does not say whether it has.
    const bool may_sleep = work.may_sleep();
    wake_listeners();
    if (something_came && runtime_polled_) {
      polling.delegate_to_runtime(Clock::now(), Clock::now() - begin);
      taken_ = something_came = false;
      continue;
    }
    something_came = true;
    if (!may_sleep) continue;
    // poll(2) ignores negative descriptors.
    pollfd fds[] = {{queue_fd, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {sleep.events_fd, POLLIN, 0}};
    something_came = ::poll(fds, 3, static_cast<int>(sleep.limit.count())) > 0 && fds[0].revents != 0;
    connection_woke = fds[2].revents != 0;
    eventfd_t wakes = 0;
    if (fds[1].revents != 0) eventfd_read(wake_fd_.get(), &wakes);
  }
}

}  // namespace farside
