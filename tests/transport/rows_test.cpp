// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "transport/rows.hpp"

using farside::Rows;
using namespace std::chrono_literals;

namespace {

Rows::Clock::time_point present;
Rows::Clock::time_point now() { return present; }

// Rows that have seen one: three operations of which two joined the first, and a flush.
Rows used() {
  Rows rows;
  CHECK(rows.comes(now) == Rows::Next::kAsEver);
  for (int i = 0; i < 2; ++i) {
    present += 1us;
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
    rows.joined();
  }
  rows.flushed(now);
  return rows;
}

}  // namespace

TEST_CASE("a row of operations lets the first of the next wait, until there is none", "[rows]") {
  Rows rows = used();
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 64; ++i) CHECK(rows.comes(now) == Rows::Next::kWaits);
    rows.flushed(now);
    rows.flushed(now);  // of nothing: changes nothing
  }
  CHECK(rows.comes(now) == Rows::Next::kWaits);
  rows.flushed(now);
  CHECK(rows.comes(now) == Rows::Next::kAsEver);
}

TEST_CASE("operations that were over before the next came are no row", "[rows]") {
  Rows rows;
  for (int i = 0; i < 3; ++i) CHECK(rows.comes(now) == Rows::Next::kAsEver);
  rows.flushed(now);
  CHECK(rows.comes(now) == Rows::Next::kAsEver);
}

TEST_CASE("who computes between operations, or before the flush, makes no rows", "[rows]") {
  SECTION("between, where one waited for a row") {
    Rows rows = used();
    CHECK(rows.comes(now) == Rows::Next::kWaits);
    present += Rows::kLongest + 1us;
    CHECK(rows.comes(now) == Rows::Next::kTooLate);
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
    rows.joined();
    rows.flushed(now);
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
  }
  SECTION("before the flush") {
    Rows rows = used();
    CHECK(rows.comes(now) == Rows::Next::kWaits);
    CHECK(rows.comes(now) == Rows::Next::kWaits);
    present += Rows::kLongest + 1us;
    rows.flushed(now);
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
    rows.joined();
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
    present += Rows::kLongest + 1us;
    rows.flushed(now);
    CHECK(rows.comes(now) == Rows::Next::kAsEver);
  }
}
