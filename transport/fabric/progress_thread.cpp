// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/progress_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <poll.h>

#include "transport/base/biased_mutex.hpp"
#include "transport/base/own_thread.hpp"

namespace farside {

Status ProgressThread::prepare() {
  wake_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd_.valid()) return Error{ErrorKind::kOther, fmt::format("eventfd: {}", std::strerror(errno))};
  return {};
}

Status ProgressThread::start(Work& work, int queue_fd) {
  return start_own_thread(thread_, "farside", [this, &work, queue_fd] { run(work, queue_fd); });
}

void ProgressThread::stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  back_off_event_.wake();
  wake();
  thread_.join();
}

void ProgressThread::listen(WakeEvent& wake_event) {
  const std::scoped_lock held(listeners_mutex_);
  listeners_.push_back(&wake_event);
  listening_.begin();
  back_off_event_.wake_if_armed();
}

void ProgressThread::stop_listening(WakeEvent& wake_event) {
  const std::scoped_lock held(listeners_mutex_);
  const auto found = std::find(listeners_.begin(), listeners_.end(), &wake_event);
  if (found == listeners_.end()) return;  // it began to sleep before the endpoint was opened
  listeners_.erase(found);
  listening_.end();
}

void ProgressThread::wake_listeners() {
  if (!listening_.any_behind_changes()) return;
  const std::scoped_lock held(listeners_mutex_);
  for (WakeEvent* wake_event : listeners_) wake_event->wake();
}

// Leaves the thread's work to application threads for a while, if they poll. Returns whether it has.
bool ProgressThread::back_off_for(AdaptivePolling& polling) {
  const bool polled = polled_;
  polled_ = false;
  std::optional<std::chrono::microseconds> back_off;
  if (listening_.any())
    polling.end();
  else
    back_off = polling.next(polled, AdaptivePolling::Clock::now());
  runtime_serves_.store(polling.runtime_serves(), std::memory_order_relaxed);
  if (!back_off) return false;
  const std::uint32_t seen = back_off_event_.arm();
  if (!listening_.any() && !stop_.load(std::memory_order_acquire)) back_off_event_.sleep(seen, *back_off);
  back_off_event_.disarm();
  return true;
}

void ProgressThread::run(Work& work, int queue_fd) {
  using Clock = AdaptivePolling::Clock;
  BiasedMutex::only_visits();
  AdaptivePolling polling;
  bool something_came = false, connection_woke = false;
  Clock::time_point look_at_connections{};
  Clock::time_point check_again = Clock::now() + kSafetyNet;
  while (!stop_.load(std::memory_order_acquire)) {
    if (Clock::now() >= check_again) {
      work.check();
      check_again = Clock::now() + kSafetyNet;
    }
    if (back_off_for(polling)) {
      if (Clock::now() >= look_at_connections) {
        work.look_at_connections();
        look_at_connections = Clock::now() + kLookNow;
      }
      continue;
    }
    runtime_polled_ = false;
    const Work::Sleep sleep = work.progress(connection_woke);
    // Wakes also if nothing completed here: a peer may have written into this process's memory.
    wake_listeners();
    if (something_came && runtime_polled_) {
      polling.leave_to_runtime(Clock::now());
      something_came = false;
      continue;
    }
    something_came = true;
    if (!work.may_sleep()) continue;
    // may_sleep() makes progress as well, and does not say whether it has.
    wake_listeners();
    // poll(2) ignores negative descriptors.
    pollfd fds[] = {{queue_fd, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {sleep.events_fd, POLLIN, 0}};
    something_came = ::poll(fds, 3, static_cast<int>(sleep.limit.count())) > 0 && fds[0].revents != 0;
    connection_woke = fds[2].revents != 0;
    eventfd_t wakes = 0;
    if (fds[1].revents != 0) eventfd_read(wake_fd_.get(), &wakes);
  }
}

}  // namespace farside
