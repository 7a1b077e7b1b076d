// SPDX-License-Identifier: BSD-3-Clause
// The lock and the global lock in all interleavings of a few ranks, with a ring of 2 slots: ranks wait beyond the ring,
// meet in a slot, and pass the hand-off on after letting in two.

// It comes first, since it changes the names in other headers.
// clang-format off
#define FARSIDE_SMALL_RING 2
#include "tests/unit/epochs/small_ring.hpp"
// clang-format on

#include "tests/unit/epochs/ring_cases.hpp"

TEST_CASE("with a ring of 2 slots, more rounds and more ranks hold") {
  must_hold({{"X0 S0 X0", "S0 X0 S0", "X0 X0 S0"}}, {.late = true});
  must_hold({{"X0", "X0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "S0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "X0", "X0", "X0"}}, {.late = true});
  must_hold({{"X0 X0", "X0", "S0", "S0"}});
}
