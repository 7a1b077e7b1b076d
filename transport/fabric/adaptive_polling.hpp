// SPDX-License-Identifier: BSD-3-Clause
// AdaptivePolling: when the progress thread backs off, and for how long. Application threads that poll the endpoint
// handle arrivals sooner than the progress thread, which must be woken first, and which competes with them for the
// provider's locks (fi_trywait alone makes progress). Application threads poll while they issue and wait in farside.
// Threads that wait in the MPI runtime poll only for a limited time after the progress thread has left arrivals to
// them; otherwise every MPI call would pay for polls of an idle endpoint. The time is extended if they have taken
// arrivals and still poll.
//
// When the pollers stop, the first arrival waits for the end of the back-off. The back-off is one eighth of the
// preceding polling time, at least 50 us and at most 1 ms, so that the thread wakes seldom during long polling, and
// resumes soon after short polling. While each look of the thread finds a poll that is under way or has just ended, the
// back-off may become 4 ms: a thread that polls without a pause of 250 us has little time to compute, and each wake-up
// takes its core. A program that computes for milliseconds between MPI calls keeps the limit of 1 ms. (Fetch-add over
// loopback on 2 busy cores: 58 us when the thread woke for each completion, 35 us with a back-off of at most 200 us.
// Put and flush between two hosts, target in MPI_Barrier: 38 us when the thread served, 22 us when the barrier did, 19
// us with a back-off of at most 1 ms instead of 200 us.)
//
// Two threads that take the data of one large transfer in turn lose more than the time of switches: each may lose its
// core while it has the endpoint's mutex. (Puts of 4 MiB between two hosts on 2 cores, target in MPI_Barrier: when the
// progress thread took over every 5 ms, one of ten took 6.3 ms or more, now 3.2 ms; the median was 2.8 ms, now 2.5.)
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
  static constexpr std::chrono::microseconds kLongestBesidePoller{4000};
  static constexpr int kShare = 8;
  // The time for which threads that wait in the runtime serve before the progress thread looks whether they still do.
  static constexpr std::chrono::milliseconds kRuntimeServes{5};
  // The progress thread clears its record of polls from the runtime at most this long before it uses the record. A
  // thread with a recorded poll is assumed to wait in the runtime still. If the assumption is wrong, the arrival waits
  // for a back-off, and for some time only polls during the work of the progress thread are used.
  static constexpr std::chrono::microseconds kRecentPoll{200};
  static constexpr std::chrono::milliseconds kDelegationPause{20};

  // Returns the length of the next back-off; none: the thread is needed. `polled`: application threads have polled
  // since the last call. `polls_now`: one of them polls at this moment.
  std::optional<std::chrono::microseconds> next(bool polled, bool polls_now, Clock::time_point now) {
    const std::chrono::microseconds delegated = std::exchange(delegated_back_off_, {});
    const bool first_since_delegated = std::exchange(delegated_before_, delegated.count() > 0);
    if (!polled && delegated.count() == 0) {
      if (first_since_delegated) delegation_paused_until_ = now + kDelegationPause;
      end();
      return std::nullopt;
    }
    if (!since_) since_ = now;
    if (!polls_now) {
      without_pause_since_.reset();
    } else if (!without_pause_since_) {
      without_pause_since_ = now;
    }
    const auto back_off = std::clamp(std::max(share(*since_, now), delegated), kShortest, kLongest);
    if (!without_pause_since_) return back_off;
    return std::max(back_off, std::min(share(*without_pause_since_, now), kLongestBesidePoller));
  }

  // Notes that something arrived, and that a thread that waits in the runtime polls. `worked`: for how long the
  // progress thread has taken arrivals. It stays away for as long, since a thread in the runtime may have lost its core
  // to it.
  void delegate_to_runtime(Clock::time_point now, Clock::duration worked) {
    runtime_serves_ = true;
    delegated_back_off_ = std::max(std::chrono::ceil<std::chrono::microseconds>(worked), kShortest);
    runtime_serves_until_ = now + kRuntimeServes;
  }
  // Returns how old the record of polls from the runtime may be.
  std::chrono::microseconds recent_poll(Clock::time_point now) const {
    return now < delegation_paused_until_ ? std::chrono::microseconds() : kRecentPoll;
  }
  bool runtime_serves() const { return runtime_serves_; }
  // Returns whether threads in the runtime have served for so long that the progress thread must probe them. The caller
  // then calls runtime_serves_on() if they still poll and have taken arrivals, and otherwise end().
  bool probe_is_due(Clock::time_point now) const { return runtime_serves_ && now >= runtime_serves_until_; }
  void runtime_serves_on(Clock::time_point now) { runtime_serves_until_ = now + kRuntimeServes; }

  // The thread is needed, whether others poll or not.
  void end() {
    runtime_serves_ = delegated_before_ = false;
    since_.reset();
    without_pause_since_.reset();
    delegated_back_off_ = {};
  }

 private:
  static std::chrono::microseconds share(Clock::time_point begin, Clock::time_point now) {
    return std::chrono::duration_cast<std::chrono::microseconds>(now - begin) / kShare;
  }

  bool runtime_serves_ = false;
  std::chrono::microseconds delegated_back_off_{};  // the least back-off after that; else zero
  bool delegated_before_ = false;                   // at the last call of next()
  Clock::time_point runtime_serves_until_{}, delegation_paused_until_{};
  std::optional<Clock::time_point> since_;                // since then, others have polled in each back-off
  std::optional<Clock::time_point> without_pause_since_;  // since then, others have polled at each look
};

}  // namespace farside
