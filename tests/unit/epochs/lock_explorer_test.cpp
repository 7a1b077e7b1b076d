// SPDX-License-Identifier: BSD-3-Clause
// The lock in all interleavings of a few ranks, with the ring of production; and locks with one defect, each of which
// must be caught. Waiting beyond the ring: ring_of_*_explorer_test.cpp.
#include <catch2/catch.hpp>

#include "tests/unit/epochs/lock_cases.hpp"

namespace farside::lock_explorer_test {

namespace {

using namespace farside::explore;

bool is_slot(std::uint32_t word) { return word >= ControlBlock::kRing && word < ControlBlock::kGlobalLock; }
bool in_drain(const Request& r) { return r.kind == Kind::kFetchAdd && r.word == ControlBlock::kDrain; }
bool announces(const Request& r) { return in_drain(r) && DrainWord::departed(r.operand) < 0; }

}  // namespace

TEST_CASE("three ranks that lock one twice exclude each other, are not overtaken, and all finish, in every mix") {
  mixes_must_hold({});
}

TEST_CASE("a lock holds when own words show their changes late") { mixes_must_hold({.late = true}); }

TEST_CASE("a lock holds when its tickets wrap") { mixes_must_hold({}, true); }

TEST_CASE("a lock holds when no interleaving is left out for being like another") {
  must_hold({{"S0 S0", "S0 X0", "X0 X0"}}, {.reduce = false});
  must_hold({{"S0 X0", "X0 S0", "X0 X0"}}, {.late = true, .reduce = false});
}

TEST_CASE("three ranks that lock one three times exclude each other and all finish") {
  must_hold({{"X0 S0 X0", "S0 X0 S0", "X0 X0 S0"}});
  must_hold({{"S0 S0 X0", "S0 S0 S0", "X0 S0 X0"}}, {.late = true});
}

TEST_CASE("four ranks that lock one exclude each other and all finish") {
  must_hold({{"X0", "X0", "S0", "S0"}});
  must_hold({{"X0", "S0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "X0", "X0", "X0"}}, {.late = true});
  must_hold({{"X0 S0", "X0", "S0", "S0"}});
}

TEST_CASE("locks of two targets, one within the other or in turn, all finish") {
  must_hold({{"X0(X1)", "X0(S1)", "S1 X0"}});
  must_hold({{"S0(X1)", "S0(S1)", "X1 X0"}});
  must_hold({{"S0(S1)", "X1(S2)", "X2 X0"}}, {.late = true});
}

TEST_CASE("two threads of a rank that wait at once are woken each by itself") {
  must_hold({{"X0 S0", "S0 X0", "X0 X0"}, {0, 0, 1}}, {.late = true});
  must_hold({{"X0 X1", "S1 X0", "X0(X1)"}, {2, 2, 0}}, {.late = true});
}

TEST_CASE("readers hold together, those that waited behind a writer too") {
  LockProgram::Seen free;
  CHECK(explore_locks({{"S0", "S0", "S0"}}, {}, &free).failure.empty());
  CHECK(free.together[0] == 3);
  // Both readers arrive after the writer that is behind the first one: they hold together only if both are woken.
  LockProgram::Seen woken;
  CHECK(explore_locks({{"X0", "S0", "S0"}}, {}, &woken).failure.empty());
  CHECK(woken.together[0] == 2);
}

TEST_CASE("a lock that loses a wake-up is caught") {
  CHECK(fault({{"X0", "X0"}}, [](Request& r) { r.dropped = wakes(r); }) == kDeadlock);
}

TEST_CASE("a lock that wakes the wrong waiter is caught") {
  CHECK(fault({{"X0", "X0", "X0"}}, [](Request& r) {
          if (wakes(r)) r.rank = static_cast<std::int8_t>((r.rank + 1) % 3);
        }) == kOvertaken);
}

TEST_CASE("a lock whose waiter does not take its wake-up off is caught") {
  CHECK(fault({{"X0 X0", "X0 X0"}}, [](Request& r) { r.dropped = r.kind == Kind::kOwnAdd && is_wake_word(r.word); }) ==
        kTogether);
}

TEST_CASE("a lock that leaves the entry of a waiter in its slot is caught") {
  CHECK(fault({{"X0", "X0"}}, [](Request& r) { r.dropped = r.kind == Kind::kFetchAdd && is_slot(r.word); }) ==
        kSlotLeft);
}

TEST_CASE("a lock whose readers do not count in the drain word is caught") {
  CHECK(fault({{"S0", "X0"}}, [](Request& r) { r.dropped = in_drain(r) && r.operand == DrainWord::kOne; }) ==
        kDeadlock);
}

TEST_CASE("a lock whose writer waits for one reader less than there are is caught") {
  CHECK(fault({{"S0", "S0", "X0"}}, [](Request& r) {
          if (announces(r)) ++r.operand;
        }) == kTogether);
}

TEST_CASE("a lock whose writer does not take itself out of the drain word is caught") {
  CHECK(fault({{"S0", "X0"}}, [](Request& r) { r.dropped = in_drain(r) && DrainWord::departed(r.operand) == 0; }) ==
        kDrainLeft);
}

TEST_CASE("a lock whose last reader wakes the writer as if it had not announced itself is caught") {
  CHECK(fault({{"S0", "X0"}}, [](Request& r) {
          if (wakes(r)) r.operand = WakeValue::make(WakeValue::kHandOff);
        }) == kDrainLeft);
}

// Readers let in before a writer depart in the drain word only, and the writer takes them off the lock word.
TEST_CASE("a lock whose writer does not release its predecessors is caught") {
  CHECK(some_fault({{"X0", "S0", "X0"}}, [](Request& r) {
          const bool departs = r.word == ControlBlock::kLock && static_cast<std::int64_t>(r.operand) < 0;
          if (departs && LockWord::writers(-r.operand) == 1) r.operand = -LockWord::kWriter;
        }) != "");
}

TEST_CASE("a lock whose writer does not learn how many predecessors it has is caught") {
  CHECK(some_fault({{"X0", "S0", "X0"}}, [](Request& r) {
          if (announces(r) && DrainWord::end(r.operand) == 1) r.operand -= DrainWord::depart(1) - DrainWord::kOne;
        }) != "");
}

TEST_CASE("a lock whose readers leave by themselves, and are taken along as well, is caught") {
  CHECK(some_fault({{"X0", "S0", "X0"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::make(WakeValue::kHandOff, HandOff::next_after(0).bits()))
            r.operand = WakeValue::kHandOff;
        }) != "");
}

TEST_CASE("a lock whose reader, alone in front of a writer, does not wake it is caught") {
  // The reader found the hand-off in its slot, so it passes the hand-off on itself and knows the next owner.
  CHECK(some_fault({{"X0", "S0", "X0"}}, [](Request& r) {
          r.dropped = wakes(r) && r.operand == WakeValue::kHandOff && r.actor == 1;
        }) == kDeadlock);
}

// A departing writer that sees two writers in their slots names the second to the first.
TEST_CASE("a lock that reads the slots of the next tickets at different times holds") {
  const Sabotage tear = [](Request& r) { r.torn = r.kind == Kind::kRead; };
  must_hold({{"X0 X0", "X0 S0", "X0"}}, {.sabotage = tear});
  must_hold({{"X0", "X0", "X0", "S0"}}, {.sabotage = tear});
  must_hold({{"X0", "S0", "S0", "X0"}}, {.late = true, .sabotage = tear});
}

TEST_CASE("a lock whose writer departs although it wakes the next owner without a departure is caught") {
  CHECK(some_fault({{"X0", "X0", "X0"}}, [](Request& r) {
          if (wakes(r) && WakeValue::how(r.operand) == WakeValue::kWithSuccessor)
            r.operand = WakeValue::make(WakeValue::kOwed);
        }) != "");
}

TEST_CASE("a lock whose next owner does not depart for the former one is caught") {
  CHECK(some_fault({{"X0", "X0", "X0"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::kOwed) r.operand = WakeValue::kHandOff;
        }) != "");
}

TEST_CASE("a lock that names a waiter other than the next to the next owner is caught") {
  CHECK(some_fault({{"X0", "X0", "X0", "X0"}}, [](Request& r) {
          if (!wakes(r) || WakeValue::how(r.operand) != WakeValue::kWithSuccessor || r.actor != 0) return;
          const int named = epochs::WaiterId::rank(WakeValue::what(r.operand));
          r.operand = WakeValue::make(WakeValue::kWithSuccessor, epochs::WaiterId::make((named + 1) % 4, 0));
        }) != "");
}

TEST_CASE("a lock whose named successor stays in its slot is caught") {
  CHECK(some_fault({{"X0", "X0", "X0"}}, [](Request& r) {
          r.dropped = r.kind == Kind::kFetchAdd && is_slot(r.word) && RingSlot::ticket(-r.operand) == 2;
        }) == kSlotLeft);
}

TEST_CASE("a lock that names a reader to the next owner is caught") {
  // The reader and the writers behind it would hold at once.
  CHECK(some_fault({{"X0", "X0", "S0", "S0"}}, [](Request& r) {
          if (r.kind == Kind::kCompareAndSwap && is_slot(r.word)) r.operand |= RingSlot::kExclusive;
        }) != "");
}

TEST_CASE("a lock whose writer leaves as a reader is caught") {
  const Sabotage depart_as_reader = [](Request& r) {
    if (r.word == ControlBlock::kLock && r.operand == -LockWord::kWriter) r.operand = -LockWord::kReader;
  };
  CHECK(fault({{"X0"}}, depart_as_reader) == kLockLeft);
  CHECK(fault({{"X0", "X0"}}, depart_as_reader) == kDeadlock);
}

TEST_CASE("a lock whose writer takes the next one's mark along is caught") {
  CHECK(fault({{"X0", "X0", "S0"}}, [](Request& r) {
          if (r.word == ControlBlock::kLock && r.operand == -LockWord::kWriter) r.operand = -2 * LockWord::kWriter;
        }) == kOvertaken);
}

TEST_CASE("a lock that takes no ticket is caught") {
  CHECK(fault({{"X0", "X0", "X0"}}, [](Request& r) {
          const bool takes_ticket = r.word == ControlBlock::kLock && r.operand == LockWord::kTicket + LockWord::kWriter;
          if (takes_ticket) r.operand = LockWord::kWriter;
        }) == kDeadlock);
}

TEST_CASE("a lock whose words are not changed atomically is caught") {
  CHECK(fault({{"X0", "X0"}},
              [](Request& r) { r.torn = r.kind == Kind::kFetchAdd && r.word == ControlBlock::kLock; }) == kTogether);
  CHECK(fault({{"X0", "S0"}}, [](Request& r) { r.torn = in_drain(r); }) == kDeadlock);
  CHECK(fault({{"X0", "X0"}}, [](Request& r) { r.torn = r.kind == Kind::kCompareAndSwap; }) == kDeadlock);
}

TEST_CASE("a lock whose waiters say the wrong kind in their slot is caught") {
  CHECK(fault({{"X0", "S0", "X0"}}, [](Request& r) {
          if (r.kind == Kind::kCompareAndSwap && is_slot(r.word)) r.operand ^= RingSlot::kExclusive;
        }) == kDeadlock);
}

TEST_CASE("a lock that offers the hand-off in the wrong slot is caught") {
  CHECK(fault({{"X0", "X0", "X0"}}, [](Request& r) {
          const bool passes =
              r.kind == Kind::kCompareAndSwap && is_slot(r.word) && RingSlot::state(r.operand) != RingSlot::kWaiting;
          if (passes) r.word = ControlBlock::ring_word((r.word - ControlBlock::kRing) / 8 + 1);
        }) == kDeadlock);
}

}  // namespace farside::lock_explorer_test
