// SPDX-License-Identifier: BSD-3-Clause
// A count that one thread at a time changes, as a mutex or its owner sees to, and that any thread may read meanwhile.
// It orders no other accesses, and costs as much as a plain integer.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

class RelaxedCount {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator std::uint32_t() const { return value_.load(std::memory_order_relaxed); }
  RelaxedCount& operator++() { return add(1); }
  RelaxedCount& operator--() { return add(~std::uint32_t{0}); }

 private:
  RelaxedCount& add(std::uint32_t by) {
    value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    return *this;
  }
  std::atomic<std::uint32_t> value_{0};
};

}  // namespace farside
