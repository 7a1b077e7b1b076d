// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/waiter.hpp"

#include <sched.h>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside {

void LongWait::report(std::chrono::seconds waited) {
  if (innermost() == nullptr || this_thread.reporting || !Log::enabled(LogLevel::kWarn)) return;
  this_thread.reporting = true;
  const Ticks waited_so_far = this_thread.waited;
  (void)without_bad_alloc([&] {
    const std::string text = innermost()->text(waited);
    if (!text.empty()) log(LogLevel::kWarn, "{}", text);
  });
  this_thread.waited = waited_so_far;  // waits of the report are a part of the one that it reports
  this_thread.reporting = false;
}

void Waiter::note_end() const {
  this_thread.last_wait_end = ticks();
  this_thread.waited += this_thread.last_wait_end - begun_;
}

// A wait is part of a protocol, which must not end halfway.
void Waiter::arm() {
  patiently([&] { progress_.listen(wake_event_); });
  seen_ = wake_event_.arm();
  armed_ = true;
}

void Waiter::look_at_clock() {
  if (LongWait::limit().count() == 0) return;
  const Clock::time_point now = Clock::now();
  if (next_report_.count() == 0) {
    since_ = now;
    next_report_ = LongWait::limit();
  }
  if (now - since_ < next_report_) [[likely]]
    return;
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - since_);
  next_report_ = 2 * waited;
  LongWait::report(waited);
}

void Waiter::pause_longer() {
  if (armed_) {
    // The caller has read the condition again since the wake event was armed.
    wake_event_.sleep(seen_, progress_.longest_sleep());
    disarm();
    progress_.poll();
    look_at_clock();
    return;
  }
  ++rounds_;
  progress_.poll();
  if (rounds_ <= Timing::kSpins + Timing::kYields || progress_.transfers()) {
    if (rounds_ % 16 == 0) progress_.poll_runtime();
    if (rounds_ % Timing::kYieldsPerClock == 0) look_at_clock();
    sched_yield();
    return;
  }
  progress_.poll_runtime();
  arm();
}

}  // namespace farside
