// SPDX-License-Identifier: BSD-3-Clause
// Backoff: the pauses of a compare-and-swap loop that loses against other processes. The n-th pause is a random number
// of yields, from 1 to 2^n and at most 64, so that of many losers few try again at once, and a winner that lost its
// core gets it back. Ranks may outnumber cores: a yield costs 0.5 us if no other thread is runnable, else a time slice.
//
// Thread safety: one thread per object. Each yield polls the endpoint once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sched.h>

#include "transport/base/random.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/waiter.hpp"

namespace farside {

class Backoff {
 public:
  static constexpr std::uint64_t kMostYields = 64;

  void pause(Progress& progress) {
    limit_ = std::min(2 * limit_, kMostYields);
    for (std::uint64_t left = 1 + mixed(ticks()) % limit_; left > 0; --left) {
      progress.poll();
      sched_yield();
    }
  }

 private:
  std::uint64_t limit_ = 1;
};

}  // namespace farside
