// SPDX-License-Identifier: BSD-3-Clause
// When the progress thread stays away, and for how long: application threads that poll the endpoint do its work sooner
// than it could, which has to be woken first and would only take the provider's locks from them (fi_trywait alone makes
// progress). They poll while they issue and wait in farside. Those that wait in the MPI runtime poll if the thread
// leaves what arrives to them, for a while each time: else every call of MPI would pay for looks at an endpoint where
// nothing happens.
//
// When they have left to compute, what arrives waits until the thread is back. So it stays away for an eighth of the
// time that they have polled by then, at least 50 us and at most 1 ms: who polls for long has it woken seldom, and who
// leaves early has it back at once. (Fetch-add over loopback on 2 busy cores: 58 us when it woke for each completion,
// 35 us when it stayed away for at most 200 us; put and flush between two hosts, target in MPI_Barrier: 38 us when the
// thread served, 22 us when the barrier did, 19 us with 1 ms instead of 200 us.)
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace farside {

class AdaptivePolling {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kShortest{50}, kLongest{1000};
  static constexpr int kShare = 8;
  // For how long the runtime's waiting threads serve before the thread looks whether anything comes still.
  static constexpr std::chrono::milliseconds kRuntimeServes{5};

  // How long to stay away now; none: the thread is needed. `polls`: how often application threads have polled so far.
  std::optional<std::chrono::microseconds> next(std::uint32_t polls, Clock::time_point now) {
    const bool polled = polls != last_polls_ || just_handed_to_runtime_;
    last_polls_ = polls;
    just_handed_to_runtime_ = false;
    if (!polled || (runtime_serves_ && now >= runtime_serves_until_)) {
      runtime_serves_ = false;
      return std::nullopt;
    }
    if (now - last_back_off_ > 2 * kLongest) since_ = now;
    last_back_off_ = now;
    return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(now - since_) / kShare, kShortest,
                      kLongest);
  }

  // Something has come, and a thread that waits in the runtime has looked in meanwhile.
  void leave_to_runtime(Clock::time_point now) {
    runtime_serves_ = just_handed_to_runtime_ = true;
    runtime_serves_until_ = now + kRuntimeServes;
  }
  bool runtime_serves() const { return runtime_serves_; }

  // The thread has to be there whoever polls.
  void end(std::uint32_t polls) {
    last_polls_ = polls;
    runtime_serves_ = just_handed_to_runtime_ = false;
  }

 private:
  std::uint32_t last_polls_ = 0;
  bool runtime_serves_ = false, just_handed_to_runtime_ = false;
  Clock::time_point runtime_serves_until_{};
  Clock::time_point since_{}, last_back_off_{};  // they poll without pause; it last went
};

}  // namespace farside
