// SPDX-License-Identifier: BSD-3-Clause
// The seeds of random unit tests: fixed ones, so that a run can be compared with another, and new ones in each run. A
// failing test prints FARSIDE_TEST_SEED=S. If this variable is in the environment, all tests use only the seed S.
//
//   for (const std::uint32_t seed : seeds({7})) {
//     INFO(named(seed));
//     std::mt19937 random(seed);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace farside::testing {

inline bool one_seed_is_given() { return std::getenv("FARSIDE_TEST_SEED") != nullptr; }

// Returns the seeds `fixed` and `fresh` new ones. The new seeds of a process are consecutive; the first one is printed
// at its first use, in case the process crashes.
inline std::vector<std::uint32_t> seeds(std::vector<std::uint32_t> fixed, std::size_t fresh = 1) {
  if (one_seed_is_given())
    return {static_cast<std::uint32_t>(std::strtoul(std::getenv("FARSIDE_TEST_SEED"), nullptr, 10))};
  static std::uint32_t next = [] {
    const std::uint32_t first = std::random_device()();
    std::fprintf(stderr, "new seeds from %u on\n", first);
    return first;
  }();
  for (std::size_t i = 0; i < fresh; ++i) fixed.push_back(next++);
  return fixed;
}
// Returns `count` seeds, half of them fixed.
inline std::vector<std::uint32_t> many_seeds(std::size_t count) {
  std::vector<std::uint32_t> fixed;
  for (std::uint32_t seed = 0; seed < count / 2; ++seed) fixed.push_back(seed);
  return seeds(std::move(fixed), count - count / 2);
}
inline std::string named(std::uint32_t seed) { return "FARSIDE_TEST_SEED=" + std::to_string(seed); }

}  // namespace farside::testing
