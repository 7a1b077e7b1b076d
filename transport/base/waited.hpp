// SPDX-License-Identifier: BSD-3-Clause
// How long the calling thread has waited inside farside, ever: who wants to know of one call reads it before and after.
// Measured (by Waiter) only when statistics or a trace are asked for.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/base/ticks.hpp"

namespace farside {

struct Waited {
  Ticks total = 0;
  Ticks last_end = 0;   // of the last wait

  static Waited& here() { return here_; }
  static bool measured() { return measured_.load(std::memory_order_relaxed); }
  static void measure() { measured_.store(true, std::memory_order_relaxed); }

 private:
  // Of the loader's static share of thread-local memory: these few bytes fit into what it keeps for libraries.
  [[gnu::tls_model("initial-exec")]] static thread_local Waited here_;
  static inline std::atomic<bool> measured_{false};
};

}  // namespace farside
