// SPDX-License-Identifier: BSD-3-Clause
// The way into something that foreign code enters at any time and from any thread, and that comes to an end all the
// same.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "transport/base/relax.hpp"

namespace farside {

// One thread at a time is inside; the others are turned away, and so is everybody while the entrance is closed.
class Entrance {
 public:
  Entrance() = default;
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

  // Any thread. True: the caller is inside until it leaves. One atomic exchange if nobody is inside, else two loads.
  bool try_enter() { return !closing_.load(std::memory_order_relaxed) && take(); }
  void leave() { taken_.store(false, std::memory_order_release); }

  // Waits until nobody is inside, and lets nobody in until reopen(). What whoever was inside has done is visible then.
  // Called by one thread at a time, not from inside.
  void close() {
    constexpr int kSpins = 1000;
    constexpr int kYields = 1000;
    // Those who come again and again would else take turns before this one.
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
