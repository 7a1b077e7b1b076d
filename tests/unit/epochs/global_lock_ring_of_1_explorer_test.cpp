// SPDX-License-Identifier: BSD-3-Clause
// The global lock in all interleavings of a few ranks, with a ring of 1 slot: ranks wait beyond the ring, meet in a
// slot, and pass the hand-off on after letting in one.
#include <catch2/catch.hpp>

// It comes first, since it changes the names in other headers.
// clang-format off
#define FARSIDE_SMALL_RING 1
#include "tests/unit/epochs/small_ring.hpp"
// clang-format on

#include "tests/unit/epochs/death_cases.hpp"
#include "tests/unit/epochs/lock_cases.hpp"

namespace {

using namespace farside::explore;
static_assert(ControlBlock::kRingSlots == FARSIDE_SMALL_RING, "small_ring.hpp must come first");

}  // namespace

TEST_CASE(
    "with a ring of 1 slot, three ranks that acquire the global lock twice exclude each other and all finish, in every "
    "mix") {
  mixes_must_hold({}, false, "L", "E");
}

TEST_CASE("a global lock with a ring of 1 slot holds when own words show their changes late and tickets wrap") {
  mixes_must_hold({.late = true}, true, "L", "E");
}

TEST_CASE("with a ring of 1 slot, more rounds and more ranks acquire the global lock") {
  must_hold({{"L E L", "E L E", "L L E"}});
  must_hold({{"L", "L", "E", "E"}}, {.late = true});
  must_hold({{"L", "E", "E", "E"}}, {.late = true});
  must_hold({{"E", "L", "L", "L"}});
  must_hold({{"L E", "L", "E", "E"}});
}

TEST_CASE("with a ring of 1 slot, lock_all, exclusive and shared locks exclude each other and all finish") {
  must_hold({{"L S0", "X0", "S0 L"}, {}, false, true});
  must_hold({{"L", "L", "X0", "S0"}, {}, false, true});
  must_hold({{"L", "X0(X1)", "X1 S0"}, {}, false, true});
}

// An arrival that is let in at once may depart before the waiters that are woken, which then estimate the front too
// near.
TEST_CASE(
    "with a ring of 1 slot, a waiter at the global lock that misjudged the front gives way to an earlier ticket") {
  must_hold({{"L E E", "E", "E", "E"}});
}

TEST_CASE("a later ticket at the global lock that is not told that its slot was taken is caught") {
  const Sabotage keep_silent = [](Request& r) { r.dropped = wakes(r) && r.operand == WakeValue::kAgain; };
  const Report report = explore_locks({{"L E E", "E", "E", "E"}}, {.shorten = false, .sabotage = keep_silent});
  CHECK(report.failure == kDeadlock);
}

TEST_CASE("with a ring of 1 slot, no living rank waits for ever for one that dies at any moment") {
  const std::vector<GivesUp> kAtAnyTime{GivesUp::kWhatIsLost, GivesUp::kAnything};
  deaths_must_hold(death_case({"X0", "X0", "X0"}), false, kAtAnyTime);
  deaths_must_hold(death_case({"S0", "X0", "S0"}), false, kAtAnyTime);
  deaths_must_hold(death_case({"X0", "L", "X1"}, true), false, kAtAnyTime);
  deaths_must_hold(death_case({"L", "X0", "L"}, true), false, kAtAnyTime);
}
