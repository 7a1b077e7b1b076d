// SPDX-License-Identifier: BSD-3-Clause
// A flag that any thread may read and change. It orders no other accesses, and a read costs as much as that of a bool.
#pragma once

#include <atomic>

namespace farside {

class RelaxedFlag {
 public:
  RelaxedFlag(bool value = false) : value_(value) {}  // NOLINT(google-explicit-constructor)
  RelaxedFlag& operator=(bool value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator bool() const { return value_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<bool> value_;
};

}  // namespace farside
