// SPDX-License-Identifier: BSD-3-Clause
// What a target does that is not in MPI.
#pragma once

#include <array>
#include <chrono>
#include <thread>

#include "tools/bench/sampler.hpp"

namespace farside::bench {

inline void sleep_until(Clock::time_point deadline) {
  while (Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Arithmetic on memory of its own, until the deadline; no system call, no MPI.
inline void compute_until(Clock::time_point deadline) {
  std::array<volatile double, 512> numbers{};
  do {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] * 0.999 + static_cast<double>(i);
  } while (Clock::now() < deadline);
}

}  // namespace farside::bench
