// SPDX-License-Identifier: BSD-3-Clause
// The total time that the calling thread has waited inside farside. The difference of two reads is the waiting time of
// the calls between them. Waiter measures it only for statistics or a trace.
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
  // In static thread-local storage: these few bytes fit into the loader's reserve for libraries.
  [[gnu::tls_model("initial-exec")]] static thread_local Waited here_;
  static inline std::atomic<bool> measured_{false};
};

}  // namespace farside
