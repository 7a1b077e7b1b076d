// SPDX-License-Identifier: BSD-3-Clause
// Guards an object with a limited life that foreign code enters at any time and from any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "transport/base/relax.hpp"

namespace farside {

// Admits one thread at a time and refuses the others. A closed entrance refuses all threads.
class Entrance {
 public:
  Entrance() = default;
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

  // Returns whether the calling thread is inside now, until leave(). Thread safety: any. Cost: two loads, and an atomic
  // exchange if no thread is inside.
  bool try_enter() { return !closing_.load(std::memory_order_relaxed) && take(); }
  void leave() { taken_.store(false, std::memory_order_release); }

  // Waits until no thread is inside, and refuses all threads until reopen(). The changes of the threads that were
  // inside are visible afterwards. Called by one thread at a time, not from inside.
  void close() {
    constexpr int kSpins = 1000;
    constexpr int kYields = 1000;
    // Without this flag, threads that enter repeatedly could overtake this one again and again.
    closing_.store(true, std::memory_order_relaxed);
    for (int i = 0; !take(); ++i) {
      if (i < kSpins) {
        relax();
      } else if (i < kSpins + kYields) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  void reopen() {
    closing_.store(false, std::memory_order_relaxed);
    leave();
  }

 private:
  bool take() { return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire); }

  std::atomic<bool> closing_{false};
  std::atomic<bool> taken_{false};
};

}  // namespace farside
