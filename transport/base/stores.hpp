// SPDX-License-Identifier: BSD-3-Clause
// The plain stores of this process to memory of its peers. A core may execute later loads before such stores leave its
// store buffer. After a flush of a put, a load must not precede the put, so the flush drains the stores.
#pragma once

#include <atomic>

namespace farside {

class Stores {
 public:
  // To be called after plain stores, unless an atomic read-modify-write of the thread followed them.
  void made() { under_way_.store(true, std::memory_order_relaxed); }
  // Orders all earlier stores before all later loads. A full fence takes as long as a put, so on x86 there is no fence
  // if nothing was stored since the last one. There stores leave a core in program order: if a thread reads another
  // thread's `false` that replaced its own `true`, its earlier stores have left its core. On other processors this does
  // not hold, so drain() always executes a fence.
  void drain() {
#if defined(__x86_64__)
    if (!under_way_.load(std::memory_order_relaxed)) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    under_way_.store(false, std::memory_order_relaxed);
#endif
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // The same after a sequentially consistent read-modify-write of this thread, which is a full fence on x86.
  void drained_by_atomic() {
#if defined(__x86_64__)
    under_way_.store(false, std::memory_order_relaxed);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

 private:
  std::atomic<bool> under_way_{false};
};

}  // namespace farside
