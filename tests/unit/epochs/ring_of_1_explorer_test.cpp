// SPDX-License-Identifier: BSD-3-Clause
// The lock and the global lock in all interleavings of a few ranks, with a ring of 1 slot: ranks wait beyond the ring,
// meet in a slot, and pass the hand-off on after letting in one.

// It comes first, since it changes the names in other headers.
// clang-format off
#define FARSIDE_SMALL_RING 1
#include "tests/unit/epochs/small_ring.hpp"
// clang-format on

#include "tests/unit/epochs/ring_cases.hpp"

TEST_CASE("a lock with a ring of 1 slot holds when no interleaving is left out for being like another") {
  must_hold({{"S0 S0", "X0 X0", "S0 X0"}}, {.reduce = false});
}

TEST_CASE("with a ring of 1 slot, more rounds and more ranks hold") {
  must_hold({{"X0 S0 X0", "S0 X0 S0", "X0 X0 S0"}});
  must_hold({{"X0", "X0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "X0", "X0", "S0"}});
}

// A far waiter estimates the front too near only if readers in between have departed: this takes three readers,
// besides the writer that hands the lock off.
TEST_CASE("with a ring of 1 slot, a waiter that misjudged the front gives way to an earlier ticket") {
  must_hold({{"X0", "S0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0 S0", "S0", "S0", "S0"}});
}

TEST_CASE("a later ticket that is not told that its slot was taken is caught") {
  const Sabotage keep_silent = [](Request& r) { r.dropped = wakes(r) && r.operand == WakeValue::kAgain; };
  CHECK(explore_locks({{"X0", "S0", "S0", "S0"}}, {.sabotage = keep_silent}).failure == kDeadlock);
}

TEST_CASE("a later ticket that is told so while it keeps the slot is caught") {
  // By the earlier ticket, and by the process that passes the hand-off to it.
  const auto take_nothing = [](bool earlier_ticket) -> Sabotage {
    return [=](Request& r) {
      const bool takes = r.kind == Kind::kCompareAndSwap && r.compare != 0;
      if (takes && (RingSlot::state(r.operand) == RingSlot::kWaiting) == earlier_ticket) r.compare = 0;
    };
  };
  const std::vector<std::string> scripts = {"X0", "S0", "S0", "S0"};
  CHECK(explore_locks({scripts}, {.adapters = false, .sabotage = take_nothing(true)}).failure == kTogether);
  CHECK(explore_locks({scripts}, {.adapters = false, .sabotage = take_nothing(false)}).failure == kEndless);
}

TEST_CASE("a lock whose waiter empties its slot by a write, which adapters may lose, is caught") {
  CHECK(fault({{"X0", "X0", "X0"}}, [](Request& r) {
          if (r.kind != Kind::kFetchAdd || r.word != ControlBlock::ring_word(0)) return;
          r.kind = Kind::kWrite;
          r.operand = RingSlot::kEmpty;
        }) == Memory::kMeets);
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
