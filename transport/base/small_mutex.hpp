// SPDX-License-Identifier: BSD-3-Clause
// A mutex of one byte, for objects of which a process has thousands. To be held for a few loads and stores only. Thread
// safety: any. Cost: one atomic operation to lock, one to unlock, and a load of a counter of sleepers; a waiting thread
// spins briefly, yields and sleeps (std::atomic_flag::wait).
#pragma once

#include <atomic>

namespace farside {

class SmallMutex {
 public:
  void lock() {
    while (locked_.test_and_set(std::memory_order_acquire)) locked_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    locked_.clear(std::memory_order_release);
    locked_.notify_one();
  }

 private:
  std::atomic_flag locked_;
};

}  // namespace farside
