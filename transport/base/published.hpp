// SPDX-License-Identifier: BSD-3-Clause
// A value that one thread at a time changes, and that any thread may read meanwhile. A read that returns a value sees
// all that the writer had written before that value (release and acquire, which on x86-64 are plain stores and loads).
#pragma once

#include <atomic>

namespace farside {

template <class T>
class Published {
 public:
  constexpr Published(T value = T()) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Published(const Published& other) : value_(other) {}
  Published& operator=(const Published& other) { return *this = static_cast<T>(other); }
  Published& operator=(T value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }
  operator T() const { return value_.load(std::memory_order_acquire); }  // NOLINT(google-explicit-constructor)

 private:
  std::atomic<T> value_;
};

}  // namespace farside
