// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the sections of `threads`.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "../check.hpp"

namespace threads {

inline int rank;
inline int size;
inline constexpr int kThreads = 4;

// Runs work(0) to work(kThreads - 1), each in a thread of its own.
inline void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& each : threads) each.join();
}

inline void compute(long nanoseconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (std::chrono::steady_clock::now() < until) {
  }
}

inline std::int64_t read_own(MPI_Win window, const std::int64_t* at) {
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const std::int64_t value = *at;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  return value;
}

}  // namespace threads
