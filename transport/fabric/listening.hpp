// SPDX-License-Identifier: BSD-3-Clause
// Listening: the number of threads that sleep until something completes or arrives at the endpoint. Threads that poll
// the endpoint read it without a lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

class Listening {
 public:
  // Called before the sleeper's last check of its condition.
  void begin() { count_.fetch_add(1, std::memory_order_seq_cst); }
  void end() { count_.fetch_sub(1, std::memory_order_relaxed); }
  bool any() const { return count_.load(std::memory_order_seq_cst) != 0; }
  // For a thread that has polled the endpoint: either it sees the listener, or the listener's last check sees the
  // change. The fence covers changes that are not sequentially consistent: completions of operations, and memory that
  // the provider writes for peers. It takes about 10 ns, where an arrival takes microseconds.
  bool any_behind_changes() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return any();
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace farside
