// SPDX-License-Identifier: BSD-3-Clause
// Plain stores to memory of others, which a core may still hold back while its later loads go ahead: who has flushed a
// put and then reads must not read the past.
#pragma once

#include <atomic>

namespace farside {

class Stores {
 public:
  // After stores that no atomic read-modify-write of this thread followed.
  void made() { under_way_.store(true, std::memory_order_relaxed); }
  // All stores made before come before all loads made later. A full fence takes as long as a put, so there is none
  // where nothing was stored since the last. On x86 stores leave a core in their order, so a thread that finds another
  // one's false over its own true finds its earlier stores gone as well; and there read-modify-writes need no fence.
  // Elsewhere neither is sure, and there always is one.
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
  // The same, behind a sequentially consistent read-modify-write of this thread.
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
