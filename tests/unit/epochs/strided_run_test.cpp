// SPDX-License-Identifier: BSD-3-Clause
// Bytes as equal blocks at equal distances.
#include "epochs/races/strided_run.hpp"

#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"

namespace farside::strided_run_test {

using namespace farside::epochs;
using farside::testing::named;
using farside::testing::seeds;

namespace {

std::vector<bool> bytes_of(const std::vector<StridedRun>& runs) {
  std::vector<bool> bytes(4096);
  for (const StridedRun& run : runs) {
    for (std::uint64_t i = 0; i < run.count; ++i) {
      for (std::uint64_t at = run.block(i).first; at < run.block(i).last; ++at) bytes[at] = true;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("a column is one run, and so is a row") {
  RunBuilder column;
  RunBuilder row;
  for (std::uint64_t i = 0; i < 100; ++i) {
    column.add({i * 80 + 8, i * 80 + 16});
    row.add({i * 8, i * 8 + 8});
  }
  REQUIRE(column.runs().size() == 1);
  CHECK(column.runs()[0].count == 100);
  CHECK(column.runs()[0].stride == 80);
  REQUIRE(row.runs().size() == 1);
  CHECK(row.runs()[0].bytes == 800);
  CHECK(row.runs()[0].count == 1);
}

TEST_CASE("neighbouring columns have no byte in common") {
  const StridedRun even{0, 4, 8, 1000};
  const StridedRun odd{4, 4, 8, 1000};
  CHECK_FALSE(overlap(even, odd));
  const auto range = overlap(even, StridedRun{7998, 10, 0, 1});
  CHECK_FALSE(range);
  const auto last = overlap(StridedRun{7994, 10, 0, 1}, even);
  REQUIRE(last);
  CHECK(last->first == 7994);
  CHECK(last->last == 7996);
}

TEST_CASE("random runs meet where a map of bytes says so") {
  const std::uint32_t seed = GENERATE(from_range(seeds({815})));
  INFO(named(seed));
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return std::uint64_t{random() % n}; };
  const auto any_run = [&] {
    const std::uint64_t bytes = 1 + below(9);
    const std::uint64_t count = 1 + below(6);
    return StridedRun{below(40), bytes, count == 1 ? 0 : bytes + below(12), count};
  };
  for (int round = 0; round < 20000; ++round) {
    const StridedRun a = any_run();
    const StridedRun b = any_run();
    const auto ours = bytes_of({a});
    const auto theirs = bytes_of({b});
    bool common = false;
    for (std::size_t i = 0; i < ours.size() && !common; ++i) common = ours[i] && theirs[i];
    const auto range = overlap(a, b);
    REQUIRE(range.has_value() == common);
    for (std::uint64_t at = range ? range->first : 0; range && at < range->last; ++at)
      REQUIRE((ours[at] && theirs[at]));
  }
}

TEST_CASE("a builder keeps the bytes, in whatever order they come") {
  const std::uint32_t seed = GENERATE(from_range(seeds({42})));
  INFO(named(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    RunBuilder builder;
    std::vector<StridedRun> ranges;
    std::uint64_t at = random() % 50;
    for (int i = 0; i < 12; ++i) {
      const std::uint64_t bytes = 1 + random() % 3;
      builder.add({at, at + bytes});
      ranges.push_back({at, bytes, 0, 1});
      at = random() % 8 == 0 ? random() % 200 : at + bytes + random() % 3;
    }
    REQUIRE(bytes_of(builder.runs()) == bytes_of(ranges));
  }
}

}  // namespace farside::strided_run_test
