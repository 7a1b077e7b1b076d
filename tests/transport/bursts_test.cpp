// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/bursts.hpp"

#include <catch2/catch.hpp>

namespace farside::bursts_test {

using farside::Bursts;
using namespace std::chrono_literals;

namespace {

Bursts::Clock::time_point present;
Bursts::Clock::time_point now() { return present; }

// Returns Bursts that have observed one burst: three operations, two of which joined the first one, and a flush.
Bursts used() {
  Bursts bursts;
  CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
  for (int i = 0; i < 2; ++i) {
    present += 1us;
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
    bursts.joined();
  }
  bursts.flushed(now);
  return bursts;
}

}  // namespace

TEST_CASE("a burst makes the first operation of the next one wait, until there is no burst", "[bursts]") {
  Bursts bursts = used();
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 64; ++i) CHECK(bursts.comes(now) == Bursts::Next::kWaits);
    bursts.flushed(now);
    bursts.flushed(now);  // of nothing: changes nothing
  }
  CHECK(bursts.comes(now) == Bursts::Next::kWaits);
  bursts.flushed(now);
  CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
}

TEST_CASE("operations that complete before the next one are no burst", "[bursts]") {
  Bursts bursts;
  for (int i = 0; i < 3; ++i) CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
  bursts.flushed(now);
  CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
}

TEST_CASE("a program that computes between operations, or before the flush, makes no bursts", "[bursts]") {
  SECTION("between, where one waited for a row") {
    Bursts bursts = used();
    CHECK(bursts.comes(now) == Bursts::Next::kWaits);
    present += Bursts::kLongest + 1us;
    CHECK(bursts.comes(now) == Bursts::Next::kTooLate);
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
    bursts.joined();
    bursts.flushed(now);
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
  }
  SECTION("before the flush") {
    Bursts bursts = used();
    CHECK(bursts.comes(now) == Bursts::Next::kWaits);
    CHECK(bursts.comes(now) == Bursts::Next::kWaits);
    present += Bursts::kLongest + 1us;
    bursts.flushed(now);
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
    bursts.joined();
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
    present += Bursts::kLongest + 1us;
    bursts.flushed(now);
    CHECK(bursts.comes(now) == Bursts::Next::kAsEver);
  }
}

}  // namespace farside::bursts_test
