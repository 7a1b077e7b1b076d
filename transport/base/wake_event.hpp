// SPDX-License-Identifier: BSD-3-Clause
// A wake event wakes sleeping threads when a condition may have changed. It lies in shared memory if on-node peers
// signal it. To signal it costs one load while no thread sleeps.
//
// A thread arms the wake event, reads the condition again, and only then sleeps. It sees a change before this read, and
// a change after it signals the wake event. Thread safety: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/base/pause.hpp"

namespace farside {

class WakeEvent {
 public:
  // For the sleeper. The result is the argument of sleep().
  std::uint32_t arm() {
    // Sequentially consistent: either the thread that changes the condition sees a sleeper, or the sleeper's next read
    // sees the change.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    // Orders the addition before the sleeper's next read, which may be an acquire load (not needed on x86).
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return wakes;
  }
  void disarm() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  void sleep(std::uint32_t armed, std::chrono::nanoseconds limit) { futex_wait(wakes_, armed, limit); }

  // Returns the number of armed threads.
  std::uint32_t sleepers() const { return sleepers_.load(std::memory_order_relaxed); }
  bool armed() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  // For a thread that has polled the endpoint: either it sees that a sleeper is armed, or the sleeper's last check sees
  // the change. The fence covers changes that are not sequentially consistent: completions of operations, and memory
  // that the provider writes for peers. It takes about 10 ns, where an arrival takes microseconds.
  bool armed_behind_changes() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return armed();
  }
  // To be called after a change of the condition. Precondition: the change was a sequentially consistent
  // read-modify-write or store.
  void wake_if_armed() {
    if (armed()) [[unlikely]]
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
