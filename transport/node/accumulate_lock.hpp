// SPDX-License-Identifier: BSD-3-Clause
// The accumulate lock of one region. A process of the target's node (or the target's handler) holds it while it
// combines elements that no CPU atomic combines. The holder holds it for microseconds and never waits meanwhile.
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
  // The acquire of the next holder follows this holder's release, which orders the plain accesses of both.
  explicit AccumulateLock(AccumulateLockWord& word) : word_(word) {
    while (word_.held.exchange(1, std::memory_order_acquire) != 0) {
      // There may be more ranks than cores, so the holder may have lost its core.
      for (int probes = 0; word_.held.load(std::memory_order_relaxed) != 0; ++probes) {
        probes < kSpins ? relax() : static_cast<void>(sched_yield());
      }
    }
  }
  AccumulateLock(const AccumulateLock&) = delete;
  AccumulateLock& operator=(const AccumulateLock&) = delete;
  ~AccumulateLock() { word_.held.store(0, std::memory_order_release); }

 private:
  // About the time that a holder needs for kLockedBytes (accumulate_rules.hpp).
  static constexpr int kSpins = 64;

  AccumulateLockWord& word_;
};

}  // namespace farside
