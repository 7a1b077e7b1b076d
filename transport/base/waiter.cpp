// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/waiter.hpp"

#include <sched.h>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/timing.hpp"

namespace farside {

constinit thread_local const LongWait::Reason* LongWait::innermost_ = nullptr;
constinit thread_local bool LongWait::reporting_ = false;

void LongWait::report(std::chrono::seconds waited) {
  if (innermost_ == nullptr || reporting_ || !Log::enabled(LogLevel::kWarn)) return;
  reporting_ = true;
  const Ticks waited_so_far = Waited::here().total;
  (void)without_bad_alloc([&]() -> Status {
    const std::string text = innermost_->text(waited);
    if (!text.empty()) log(LogLevel::kWarn, "{}", text);
    return {};
  });
  Waited::here().total = waited_so_far;  // waits of the report are a part of the one that it reports
  reporting_ = false;
}

thread_local Waited Waited::here_;

void Waiter::note_end() const {
  Waited& here = Waited::here();
  here.last_end = ticks();
  here.total += here.last_end - begun_;
}

// A wait is part of a protocol, which must not end halfway.
void Waiter::arm() {
  patiently([&] { progress_.listen(wake_event_); });
  seen_ = wake_event_.arm();
  armed_ = true;
}

void Waiter::disarm() {
  wake_event_.disarm();
  progress_.stop_listening(wake_event_);
  armed_ = false;
}

void Waiter::look_at_clock() {
  if (LongWait::limit().count() == 0) return;
  const LongWait::Clock::time_point now = LongWait::Clock::now();
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
