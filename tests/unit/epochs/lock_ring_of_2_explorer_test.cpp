// SPDX-License-Identifier: BSD-3-Clause
// The lock in all interleavings of a few ranks, with a ring of 2 slots: ranks wait beyond the ring, and meet in a
// slot.
#include <catch2/catch.hpp>

// It comes first, since it changes the names in other headers.
// clang-format off
#define FARSIDE_SMALL_RING 2
#include "tests/unit/epochs/small_ring.hpp"
// clang-format on

#include "tests/unit/epochs/lock_cases.hpp"

namespace {

using namespace farside::explore;
static_assert(ControlBlock::kRingSlots == FARSIDE_SMALL_RING, "small_ring.hpp must come first");

}  // namespace

TEST_CASE("with a ring of 2 slots, three ranks that lock one twice exclude each other and all finish, in every mix") {
  mixes_must_hold({});
}

TEST_CASE("a lock with a ring of 2 slots holds when own words show their changes late and tickets wrap") {
  mixes_must_hold({.late = true}, true);
}

TEST_CASE("with a ring of 2 slots, more rounds and more ranks hold") {
  must_hold({{"X0 S0 X0", "S0 X0 S0", "X0 X0 S0"}}, {.late = true});
  must_hold({{"X0", "X0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "S0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "X0", "X0", "X0"}}, {.late = true});
  must_hold({{"X0 X0", "X0", "S0", "S0"}});
}
