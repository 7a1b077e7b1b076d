// SPDX-License-Identifier: BSD-3-Clause
// What holds with a ring of 1 slot and with a ring of 2 slots: ring_of_*_explorer_test.cpp include it behind
// small_ring.hpp, and have the other cases.
#pragma once

#include <catch2/catch.hpp>

#include "tests/unit/epochs/death_cases.hpp"
#include "tests/unit/epochs/lock_cases.hpp"

namespace {

using namespace farside::explore;
static_assert(ControlBlock::kRingSlots == FARSIDE_SMALL_RING, "small_ring.hpp must come first");

}  // namespace

// The names of tests in one program are distinct.
#if FARSIDE_SMALL_RING == 1
#define RING "with a ring of 1 slot, "
#else
#define RING "with a ring of 2 slots, "
#endif

TEST_CASE(RING "three ranks that lock one twice exclude each other and all finish, in every mix") {
  mixes_must_hold({});
}

TEST_CASE(RING "a lock holds when own words show their changes late and tickets wrap") {
  mixes_must_hold({.late = true}, true);
}

TEST_CASE(RING "three ranks that acquire the global lock twice exclude each other and all finish, in every mix") {
  mixes_must_hold({}, false, "L", "E");
}

TEST_CASE(RING "a global lock holds when own words show their changes late and tickets wrap") {
  mixes_must_hold({.late = true}, true, "L", "E");
}

TEST_CASE(RING "more rounds and more ranks acquire the global lock") {
  must_hold({{"L E L", "E L E", "L L E"}});
  must_hold({{"L", "L", "E", "E"}}, {.late = true});
  must_hold({{"L", "E", "E", "E"}}, {.late = true});
  must_hold({{"E", "L", "L", "L"}});
  must_hold({{"L E", "L", "E", "E"}});
}

TEST_CASE(RING "lock_all, exclusive and shared locks exclude each other and all finish") {
  must_hold({{"L S0", "X0", "S0 L"}, {}, false, true});
  must_hold({{"L", "L", "X0", "S0"}, {}, false, true});
  must_hold({{"L", "X0(X1)", "X1 S0"}, {}, false, true});
}

TEST_CASE(RING "no living rank waits for ever for one that dies at any moment") {
  const std::vector<GivesUp> kAtAnyTime{GivesUp::kWhatIsLost, GivesUp::kAnything};
  deaths_must_hold(death_case({"X0", "X0", "X0"}), false, kAtAnyTime);
  deaths_must_hold(death_case({"S0", "X0", "S0"}), false, kAtAnyTime);
  deaths_must_hold(death_case({"X0", "L", "X1"}, true), false, kAtAnyTime);
  deaths_must_hold(death_case({"L", "X0", "L"}, true), false, kAtAnyTime);
}
