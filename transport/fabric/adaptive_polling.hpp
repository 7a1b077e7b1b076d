// SPDX-License-Identifier: BSD-3-Clause
// AdaptivePolling: when the progress thread backs off, and for how long. Application threads that poll the endpoint
// do its work sooner: the progress thread has to be woken, and takes the provider's locks from them (fi_trywait alone
// makes progress). Application threads poll while they issue and wait in farside. Threads that wait in the MPI
// runtime poll only for a limited time after the progress thread has left arrivals to them; otherwise every MPI call
// would pay for polls of an idle endpoint.
//
// When the pollers stop, the first arrival waits for the end of the back-off. The back-off is one eighth of the
// preceding polling time, at least 50 us and at most 1 ms, so that long polling wakes the thread seldom and short
// polling has it back soon. (Fetch-add over loopback on 2 busy cores: 58 us when the thread woke for each completion,
// 35 us with a back-off of at most 200 us. Put and flush between two hosts, target in MPI_Barrier: 38 us when the
// thread served, 22 us when the barrier did, 19 us with a back-off of at most 1 ms instead of 200 us.)
//
// Not thread-safe: only the progress thread uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace farside {

class AdaptivePolling {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kShortest{50}, kLongest{1000};
  static constexpr int kShare = 8;
  // The time for which threads that wait in the runtime serve before the progress thread checks for arrivals again.
  static constexpr std::chrono::milliseconds kRuntimeServes{5};

  // Returns the length of the next back-off; none: the thread is needed. `polled`: application threads have polled
  // since the last call.
  std::optional<std::chrono::microseconds> next(bool polled, Clock::time_point now) {
    const bool backs_off = std::exchange(just_handed_to_runtime_, false) || polled;
    if (!backs_off || (runtime_serves_ && now >= runtime_serves_until_)) {
      runtime_serves_ = false;
      return std::nullopt;
    }
    if (now - last_back_off_ > 2 * kLongest) since_ = now;
    last_back_off_ = now;
    return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(now - since_) / kShare, kShortest,
                      kLongest);
  }

  // Notes that something arrived, and that a thread that waits in the runtime has polled meanwhile.
  void leave_to_runtime(Clock::time_point now) {
    runtime_serves_ = just_handed_to_runtime_ = true;
    runtime_serves_until_ = now + kRuntimeServes;
  }
  bool runtime_serves() const { return runtime_serves_; }

  // Ends polling by others: the thread is needed although they poll.
  void end() { runtime_serves_ = just_handed_to_runtime_ = false; }

 private:
  bool runtime_serves_ = false, just_handed_to_runtime_ = false;
  Clock::time_point runtime_serves_until_{};
  Clock::time_point since_{}, last_back_off_{};  // start of the polling without pause; start of the last back-off
};

}  // namespace farside
