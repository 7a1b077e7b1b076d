// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "transport/routes/fabric/target_order.hpp"

namespace farside::bursts_test {

using farside::Bursts;
using namespace std::chrono_literals;

namespace {

Bursts::Clock::time_point present;
Bursts::Clock::time_point now() { return present; }

// Returns Bursts that have observed one burst: three operations, two of which joined the first one, and a flush.
Bursts used() {
  Bursts bursts;
  CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
  for (int i = 0; i < 2; ++i) {
    present += 1us;
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
    bursts.joined();
  }
  bursts.flushed(now);
  return bursts;
}

}  // namespace

TEST_CASE("a burst makes the first operation of the next one wait, until there is no burst", "[bursts]") {
  Bursts bursts = used();
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 64; ++i) CHECK(bursts.next_operation(now) == Bursts::Next::kCoalesce);
    bursts.flushed(now);
    bursts.flushed(now);  // of nothing: changes nothing
  }
  CHECK(bursts.next_operation(now) == Bursts::Next::kCoalesce);
  bursts.flushed(now);
  CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
}

TEST_CASE("operations that complete before the next one are no burst", "[bursts]") {
  Bursts bursts;
  for (int i = 0; i < 3; ++i) CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
  bursts.flushed(now);
  CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
}

TEST_CASE("a program that computes between operations, or before the flush, makes no bursts", "[bursts]") {
  SECTION("between, where one waited for a row") {
    Bursts bursts = used();
    CHECK(bursts.next_operation(now) == Bursts::Next::kCoalesce);
    present += Timing::kLongestBurst + 1us;
    CHECK(bursts.next_operation(now) == Bursts::Next::kTooLate);
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
    bursts.joined();
    bursts.flushed(now);
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
  }
  SECTION("before the flush") {
    Bursts bursts = used();
    CHECK(bursts.next_operation(now) == Bursts::Next::kCoalesce);
    CHECK(bursts.next_operation(now) == Bursts::Next::kCoalesce);
    present += Timing::kLongestBurst + 1us;
    bursts.flushed(now);
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
    bursts.joined();
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
    present += Timing::kLongestBurst + 1us;
    bursts.flushed(now);
    CHECK(bursts.next_operation(now) == Bursts::Next::kDefault);
  }
}

}  // namespace farside::bursts_test
