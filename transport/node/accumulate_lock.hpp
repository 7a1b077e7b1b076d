// SPDX-License-Identifier: BSD-3-Clause
// The accumulate lock of one region: held by a process of the target's node (or the target's handler) while it
// combines elements that no CPU atomic can combine. Held for microseconds and never while waiting for anything.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "transport/base/relax.hpp"

namespace farside {

// In shared memory: 0 free, 1 held.
struct AccumulateLockWord {
  std::atomic<std::uint32_t> held{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class AccumulateLock {
 public:
  // Acquire and release order the plain accesses between them against those of the next holder.
  explicit AccumulateLock(AccumulateLockWord& word) : word_(word) {
    while (word_.held.exchange(1, std::memory_order_acquire) != 0) {
      // The holder may have been descheduled: there may be more ranks than cores.
      for (int probes = 0; word_.held.load(std::memory_order_relaxed) != 0; ++probes) {
        probes < kSpins ? relax() : static_cast<void>(sched_yield());
      }
    }
  }
  AccumulateLock(const AccumulateLock&) = delete;
  AccumulateLock& operator=(const AccumulateLock&) = delete;
  ~AccumulateLock() { word_.held.store(0, std::memory_order_release); }

 private:
  // About what a holder needs for one piece (Space::kLockedBytes).
  static constexpr int kSpins = 64;

  AccumulateLockWord& word_;
};

}  // namespace farside
