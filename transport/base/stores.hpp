// SPDX-License-Identifier: BSD-3-Clause
// The plain stores of a thread to memory of the peers of its process. A core may execute later loads before such stores
// leave its store buffer. After a flush of a put, a load must not precede the put, so the flush drains the stores.
//
// Each thread has an object of its own (Stores::here()). A flush that completes another thread's put follows it in the
// program (MPI 4.0 section 11.6), so the flushing thread has seen a store or an atomic that followed the put. On x86
// stores leave a core in program order, so the put has left its core, too; elsewhere drain() always executes a fence,
// which is cumulative.
//
// Thread safety: one thread per object. Cost: a load or a store, and a fence if something was stored.
#pragma once

#include <atomic>

namespace farside {

class Stores {
 public:
  // Those of the calling thread, in all spaces.
  static Stores& here();

  // To be called after plain stores, unless an atomic read-modify-write of the thread followed them.
  void made() { under_way_ = true; }
  // Orders all earlier stores before all later loads. A full fence takes as long as a put, so on x86 there is no fence
  // if the thread has stored nothing since its last one.
  void drain() {
#if defined(__x86_64__)
    if (!under_way_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    under_way_ = false;
#endif
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // The same after a sequentially consistent read-modify-write of this thread, which is a full fence on x86.
  void drained_by_atomic() {
#if defined(__x86_64__)
    under_way_ = false;
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

 private:
  bool under_way_ = false;
};

// The model of its storage saves a call per access.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit Stores stores_of_thread;

inline Stores& Stores::here() { return stores_of_thread; }

}  // namespace farside
