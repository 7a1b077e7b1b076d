// SPDX-License-Identifier: BSD-3-Clause
// A mutex of one byte, for objects of which a process has thousands. To be held for a few loads and stores only. Thread
// safety: any. Cost: one atomic operation to lock and one to unlock, both of its own byte, while no other thread waits;
// a waiting thread spins briefly, yields and sleeps (std::atomic::wait).
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

class SmallMutex {
 public:
  void lock() {
    std::uint8_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire, std::memory_order_relaxed))
        [[likely]]
      return;
    while (state_.exchange(kWaited, std::memory_order_acquire) != kFree)
      state_.wait(kWaited, std::memory_order_relaxed);
  }
  // libstdc++ notes each notification in one of 16 words of the process, so there is one only if a thread may wait.
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaited) state_.notify_one();
  }

 private:
  // kWaited: locked, and other threads may wait.
  static constexpr std::uint8_t kFree = 0, kLocked = 1, kWaited = 2;
  std::atomic<std::uint8_t> state_{kFree};
};

}  // namespace farside
