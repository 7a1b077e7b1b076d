// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include <catch2/catch.hpp>

#include "transport/base/ticks.hpp"

namespace farside::clock_offset_test {

namespace {
constexpr std::uint64_t kSecond = 1'000'000'000;
}

TEST_CASE("the offset of a clock is that of the shortest round trip, within half of it") {
  int trips = 0;
  const auto offset = compare_clock([&](std::uint64_t mine, std::uint64_t& theirs) {
    // The first trip is slow, and what it claims is wrong.
    if (++trips == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    theirs = mine + (trips == 1 ? 5 : 1) * kSecond;
    return true;
  });
  REQUIRE(offset);
  CHECK(trips == kClockRoundTrips);
  CHECK(std::llabs(offset->ahead - static_cast<std::int64_t>(kSecond)) <= static_cast<long long>(offset->uncertain));
}

TEST_CASE("a clock whose peer does not answer has no offset") {
  int trips = 0;
  CHECK_FALSE(compare_clock([&](std::uint64_t, std::uint64_t&) { return ++trips < 3; }));
  CHECK(trips == 3);
}

TEST_CASE("who answers receives and sends a reading for each round trip, until one of them fails") {
  int received = 0, sent = 0;
  CHECK(answer_clock([&](std::uint64_t&) { return ++received > 0; }, [&](std::uint64_t) { return ++sent > 0; }));
  CHECK(received == kClockRoundTrips);
  CHECK(sent == kClockRoundTrips);
  CHECK_FALSE(answer_clock([](std::uint64_t&) { return false; }, [](std::uint64_t) { return true; }));
  CHECK_FALSE(answer_clock([](std::uint64_t&) { return true; }, [](std::uint64_t) { return false; }));
}

}  // namespace farside::clock_offset_test
