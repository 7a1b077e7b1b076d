// SPDX-License-Identifier: BSD-3-Clause
// What a target outside of MPI does.
#pragma once

#include <array>
#include <chrono>
#include <thread>

#include "tools/bench/sampler.hpp"

namespace farside::bench {

inline void sleep_until(Clock::time_point deadline) {
  while (Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Computes on this process's own memory until the deadline, without system calls or MPI.
inline void compute_until(Clock::time_point deadline) {
  std::array<volatile double, 512> numbers{};
  do {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] * 0.999 + static_cast<double>(i);
  } while (Clock::now() < deadline);
}

}  // namespace farside::bench
