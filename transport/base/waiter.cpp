// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/waiter.hpp"

#include <sched.h>

#include <algorithm>

namespace farside {

namespace {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Waiter::pause() {
  ++rounds_;
  if (rounds_ <= kSpins) {
    relax();
    if (rounds_ % 8 == 0) progress_.poll();
    return;
  }
  progress_.poll();
  if (rounds_ <= kSpins + kYields) {
    if (rounds_ % 16 == 0) progress_.poll_runtime();
    sched_yield();
    return;
  }
  progress_.poll_runtime();
  progress_.sleep(sleep_);
  sleep_ = std::min(2 * sleep_, kLongestSleep);
}

}  // namespace farside
