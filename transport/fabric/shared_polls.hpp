// SPDX-License-Identifier: BSD-3-Clause
// Polls of threads that wait at the same time. A poll serves all threads of the process. Where polls are system calls,
// threads that repeat each other's polls take processor time from the thread that they wait for: with two threads on
// two cores, from the peer's thread that answers.
// Thread safety: any thread. Cost: two loads, and two stores for a poll.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace farside {

class SharedPolls {
 public:
  // A thread whose last poll ended so recently is taken to poll still. The time includes the wake-up of the thread that
  // asks, which may have taken the poller's core (100 us on virtual machines).
  static constexpr std::uint64_t kPauseNs = 250'000;
  // A poll counts for as long as it took, and not for longer than this: its thread may have lost its core meanwhile.
  static constexpr std::uint64_t kLongestNs = 10'000;

  // Returns whether a poll that `thread` (a ThreadSlot) makes now would repeat one that another thread has just made.
  bool repeats(int thread, std::uint64_t now_ns) const {
    return last_thread_.load(std::memory_order_relaxed) != thread &&
           now_ns < counts_until_ns_.load(std::memory_order_relaxed);
  }
  // Returns whether a poll ended a moment ago.
  bool polled_just_now(std::uint64_t now_ns) const {
    return now_ns < counts_until_ns_.load(std::memory_order_relaxed) + kPauseNs;
  }
  void polled(int thread, std::uint64_t begin_ns, std::uint64_t end_ns) {
    last_thread_.store(thread, std::memory_order_relaxed);
    counts_until_ns_.store(end_ns + std::min(end_ns - begin_ns, kLongestNs), std::memory_order_relaxed);
  }

 private:
  // A reader that sees values of two polls is wrong for kLongestNs at most.
  std::atomic<int> last_thread_{-1};
  std::atomic<std::uint64_t> counts_until_ns_{0};  // of CLOCK_MONOTONIC
};

}  // namespace farside
