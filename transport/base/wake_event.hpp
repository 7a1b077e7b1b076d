// SPDX-License-Identifier: BSD-3-Clause
// A wake event: who sleeps hears when something that it may wait for has changed. It stands in shared memory where
// on-node peers signal it, and costs whoever signals one load while nobody sleeps.
//
// The sleeper arms it (arm), looks once more at what it waits for, and only then sleeps: what changed before the look
// is seen, what changes after it signals.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/base/futex.hpp"

namespace farside {

class WakeEvent {
 public:
  // For the sleeper. The returned value goes to sleep().
  std::uint32_t arm() {
    // Sequentially consistent: either whoever changes something sees a sleeper, or the sleeper's next look sees the
    // change.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    // The next look may be an acquire load, which alone could pass the addition (not on x86).
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return wakes;
  }
  void disarm() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  void sleep(std::uint32_t armed, std::chrono::nanoseconds limit) { futex_wait(wakes_, armed, limit); }

  // For whoever has changed something, by a sequentially consistent read-modify-write or store.
  void wake_if_armed() {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake();
  }
  void wake() {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(wakes_);
  }

 private:
  std::atomic<std::uint32_t> wakes_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace farside
