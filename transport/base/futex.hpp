// SPDX-License-Identifier: BSD-3-Clause
// Sleep on a word until another thread or process wakes the sleepers (futex(2)). The word may be in shared memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace farside {

// Returns when the word no longer holds `seen`, after a wake, after `limit`, or spuriously.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  const timespec timeout{.tv_sec = limit.count() / 1'000'000'000, .tv_nsec = limit.count() % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace farside
