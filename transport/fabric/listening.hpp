// SPDX-License-Identifier: BSD-3-Clause
// How many threads sleep until something arrives at the endpoint, or moves there; read by whoever moves it, without a
// lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

class Listening {
 public:
  // Before the last look at what is waited for.
  void begin() { count_.fetch_add(1, std::memory_order_seq_cst); }
  void end() { count_.fetch_sub(1, std::memory_order_relaxed); }
  bool any() const { return count_.load(std::memory_order_seq_cst) != 0; }
  // For whoever has moved the endpoint: either it sees who listens, or that thread's last look sees what has moved. The
  // fence is for changes that are not sequentially consistent: ends of operations, and memory that the provider writes
  // for peers. It takes some 10 ns where something took microseconds to arrive.
  bool any_behind_changes() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return any();
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace farside
