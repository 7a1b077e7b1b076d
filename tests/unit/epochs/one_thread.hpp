// SPDX-License-Identifier: BSD-3-Clause
// The traits of the lock table of a process with one thread (lock_table.hpp), for tests without an explorer.
#pragma once

#include <cstddef>
#include <vector>

namespace farside::epochs {

struct OneThread {
  static constexpr std::size_t kMostRanks = 4;
  template <class T>
  using List = std::vector<T>;
  struct Mutex {};
  struct Guard {
    explicit Guard(Mutex&) {}
    ~Guard() {}  // avoids warnings of unused objects
  };
};

}  // namespace farside::epochs
