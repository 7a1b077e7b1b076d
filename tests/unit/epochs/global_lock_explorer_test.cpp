// SPDX-License-Identifier: BSD-3-Clause
// The global lock in all interleavings of a few ranks, alone and with the locks behind it; and global locks with one
// defect, each of which must be caught. Waiting beyond the ring: ring_of_*_explorer_test.cpp.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/lock_cases.hpp"

namespace farside::global_lock_explorer_test {

namespace {

using namespace farside::explore;

bool is_slot(std::uint32_t word) { return word >= ControlBlock::kGlobalLockRing && word < ControlBlock::kPosted; }
bool is_drain(std::uint32_t word) {
  return word == ControlBlock::kGlobalLockDrain || word == ControlBlock::kGlobalLockDrain + 8;
}
bool announces(const Request& r) {
  return r.kind == Kind::kFetchAdd && is_drain(r.word) && DrainWord::departed(r.operand) < 0;
}
bool withdraws(const Request& r) {
  return r.kind == Kind::kFetchAdd && is_drain(r.word) && DrainWord::departed(r.operand) == 0;
}
bool departs(const Request& r) {
  return r.kind == Kind::kFetchAdd && is_drain(r.word) && DrainWord::departed(r.operand) > 0;
}

}  // namespace

TEST_CASE(
    "three ranks that acquire the global lock twice exclude each other by group, are not overtaken, and all finish, in "
    "every mix") {
  mixes_must_hold({}, false, "L", "E");
}

TEST_CASE("a global lock holds when own words show their changes late") {
  mixes_must_hold({.late = true}, false, "L", "E");
}

TEST_CASE("a global lock holds when its tickets wrap") { mixes_must_hold({}, true, "L", "E"); }

TEST_CASE("a global lock holds when no interleaving is left out for being like another") {
  must_hold({{"L L", "L E", "E E"}}, {.reduce = false});
  must_hold({{"L E", "E L", "E E"}}, {.late = true, .reduce = false});
}

TEST_CASE("three ranks that acquire the global lock three times all finish") {
  must_hold({{"L E L", "E L E", "L L E"}});
  must_hold({{"E L E", "L E L", "E E L"}}, {.late = true});
}

TEST_CASE("four ranks that acquire the global lock all finish") {
  must_hold({{"L", "L", "E", "E"}});
  must_hold({{"L", "E", "E", "E"}}, {.late = true});
  must_hold({{"L", "L", "L", "E"}}, {.late = true});
  must_hold({{"L E", "L", "E", "E"}});
  must_hold({{"E L", "E", "L", "L"}});
  must_hold({{"L E", "E L", "L", "E"}});
}

TEST_CASE("members of one group are under the global lock together, those that waited too") {
  LockProgram::Seen free;
  CHECK(explore_locks({{"L", "L", "L"}}, {}, &free).failure.empty());
  CHECK(free.at_global_lock[0] == 3);
  CHECK(explore_locks({{"E", "E", "E"}}, {}, &free).failure.empty());
  CHECK(free.at_global_lock[1] == 3);
  // The two arrive after the one that they wait for, or before it: they can hold together in both cases.
  LockProgram::Seen woken;
  CHECK(explore_locks({{"L", "E", "E"}}, {}, &woken).failure.empty());
  CHECK(woken.at_global_lock[1] == 2);
  CHECK(explore_locks({{"E", "L", "L"}}, {}, &woken).failure.empty());
  CHECK(woken.at_global_lock[0] == 2);
}

TEST_CASE("lock_all, exclusive and shared locks of one target exclude each other and all finish") {
  must_hold({{"L L", "X0 X0"}, {}, false, true});
  must_hold({{"L X0", "X0 L"}, {}, true, true}, {.late = true});
  must_hold({{"L S0", "S0 L", "X0"}, {}, false, true});
  must_hold({{"L S0", "S0", "X0 L"}, {}, false, true}, {.late = true});
  must_hold({{"L", "L", "X0", "S0"}, {}, false, true});
}

TEST_CASE(
    "exclusive locks of different targets are held together, those within one another acquire the global lock once") {
  must_hold({{"L", "X0(X1)", "X1 S0"}, {}, false, true});
  must_hold({{"X0(X1)", "X1", "L"}, {}, false, true}, {.late = true});
  LockProgram::Seen seen;
  CHECK(explore_locks({{"X0", "X1", "X2"}, {}, false, true}, {}, &seen).failure.empty());
  CHECK(seen.at_global_lock[1] == 3);
}

TEST_CASE("two threads of a rank that wait at the global lock at once are woken each by itself") {
  must_hold({{"L E", "E L", "L E"}, {0, 0, 1}}, {.late = true});
}

// Two processes ask for the same lock and for the global lock at once, with a lock_all in between. The one that holds
// the lock while it waits at the global lock must leave the lock to the other, which is past the global lock.
TEST_CASE("an exclusive lock that is kept in front of the global lock is caught") {
  must_hold({{"L", "X0", "X0"}, {}, false, true});
  CHECK(some_fault({{"L", "X0", "X0"}, {}, false, true}, [](Request& r) {
          r.dropped = r.word == ControlBlock::kLock && r.operand == LockWord::depart(LockType::kExclusive);
        }) != "");
}

// A process that holds an exclusive lock must not acquire the global lock again.
TEST_CASE("an exclusive lock within another that acquires the global lock anew is caught") {
  CHECK(fault({{"E(E)", "L"}}, {}) == kDeadlock);
}

TEST_CASE("a global lock that loses a wake-up is caught") {
  CHECK(fault({{"L", "E"}}, [](Request& r) { r.dropped = wakes(r); }) == kDeadlock);
}

TEST_CASE("a global lock that wakes the wrong waiter is caught") {
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (wakes(r)) r.rank = static_cast<std::int8_t>((r.rank + 1) % 3);
        }) != "");
}

TEST_CASE("a global lock whose leavers do not count in the drain word is caught") {
  CHECK(fault({{"L", "E"}}, [](Request& r) { r.dropped = departs(r); }) == kDeadlock);
}

TEST_CASE("a global lock whose waiter waits for one less than there are is caught") {
  CHECK(fault({{"L", "L", "E"}}, [](Request& r) {
          if (announces(r)) ++r.operand;
        }) != "");
}

TEST_CASE("a global lock whose waiter does not take itself out of the drain word is caught") {
  CHECK(fault({{"L", "E"}}, [](Request& r) { r.dropped = withdraws(r); }) == kDrainLeft);
}

TEST_CASE("a global lock whose waiter leaves the end in the drain word is caught") {
  CHECK(fault({{"L", "E"}}, [](Request& r) {
          if (withdraws(r)) r.operand += DrainWord::end(-r.operand) << DrainWord::kEndShift;
        }) == kDrainLeft);
}

TEST_CASE("a global lock whose last leaver does not tell the end is caught") {
  // The waiter searches for a next owner that never comes.
  CHECK(fault({{"L", "E"}}, [](Request& r) {
          if (departs(r)) r.operand = DrainWord::kOne;
        }) == kDrainLeft);
}

TEST_CASE("a global lock that tells an end while its own group waits is caught") {
  CHECK(fault({{"L", "L", "E"}}, [](Request& r) {
          if (departs(r)) r.operand = DrainWord::depart(1);
        }) == kDeadlock);
}

TEST_CASE("a global lock that lets one less in than wait is caught") {
  CHECK(fault({{"L", "E", "E"}}, [](Request& r) {
          if (departs(r) && DrainWord::end(r.operand) > 1) r.operand = DrainWord::depart(1);
        }) != "");
}

// Members let in before a next owner depart in the drain word only, and the next owner takes them off the lock word.
TEST_CASE("a global lock whose next owner does not release its predecessors is caught") {
  // The last one finds the hand-off in its slot.
  CHECK(some_fault({{"L", "E", "L"}}, [](Request& r) {
          r.dropped = r.word == ControlBlock::kGlobalLock && r.operand == LockWord::depart(LockType::kExclusive) &&
                      r.actor != 1;
        }) != "");
  CHECK(some_fault({{"E", "L", "L", "E"}}, [](Request& r) {
          r.dropped = r.word == ControlBlock::kGlobalLock && r.operand == LockWord::depart(LockType::kShared, 2);
        }) != "");
}

TEST_CASE("a global lock whose next owner releases one predecessor too many is caught") {
  CHECK(some_fault({{"E", "L", "L", "E"}}, [](Request& r) {
          if (announces(r) && DrainWord::end(r.operand) == 2) r.operand += DrainWord::depart(1) - DrainWord::kOne;
        }) != "");
}

TEST_CASE("a global lock whose members leave by themselves, and are taken off as well, is caught") {
  CHECK(some_fault({{"E", "L", "L", "E"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::make(WakeValue::kHandOff, HandOff::next_after(0).bits()))
            r.operand = WakeValue::kHandOff;
        }) != "");
}

// A member that is alone in its group and has found the next owner wakes it when it departs.
TEST_CASE("a global lock whose only member reports no waiter behind its successor is caught") {
  CHECK(some_fault({{"L", "E", "L", "E"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::make(WakeValue::kHandOff, HandOff::next_after(1).bits()))
            r.operand = WakeValue::kHandOff;
        }) == kDeadlock);
  CHECK(some_fault({{"E", "L", "E", "E"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::make(WakeValue::kHandOff, HandOff::members(1).bits()))
            r.operand = WakeValue::kHandOff;
        }) == kDeadlock);
}

TEST_CASE("a global lock whose successor takes itself out of a drain word that it does not stand in is caught") {
  CHECK(some_fault({{"L", "E", "L", "E"}}, [](Request& r) {
          if (wakes(r) && r.operand == WakeValue::make(WakeValue::kHandOff, HandOff::next_after(1).bits()))
            r.operand = WakeValue::make(WakeValue::kDrained, 1);
        }) != "");
}

TEST_CASE("a global lock with one drain word for both groups is caught") {
  // The count is right only if no group announces itself while the waiter of the other group has not withdrawn.
  CHECK(fault({{"L L", "E E", "L E"}}, [](Request& r) {
          if (is_drain(r.word)) r.word = ControlBlock::kGlobalLockDrain;
        }) != "");
}

TEST_CASE("a global lock whose one group does not see the other is caught") {
  CHECK(fault({{"L", "E"}}, [](Request& r) {
          if (r.word == ControlBlock::kGlobalLock && r.operand == LockWord::kTicket + LockWord::kWriter)
            r.operand = LockWord::kTicket + LockWord::kReader;
        }) != "");
}

TEST_CASE("a global lock whose exclusive locks leave as lock_alls is caught") {
  const Sabotage depart_as_reader = [](Request& r) {
    if (r.word == ControlBlock::kGlobalLock && r.operand == -LockWord::kWriter) r.operand = -LockWord::kReader;
  };
  CHECK(fault({{"E"}}, depart_as_reader) == kLockLeft);
}

TEST_CASE("a global lock that takes no ticket is caught") {
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (r.word == ControlBlock::kGlobalLock && r.operand == LockWord::kTicket + LockWord::kReader)
            r.operand = LockWord::kReader;
        }) != "");
}

TEST_CASE("a global lock whose next owner is not announced behind those that go first is caught") {
  // E comes second and L third: one member holds with E, and the announcement of L must count it.
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (announces(r) && r.word == ControlBlock::kGlobalLockDrain + 8) r.operand += 1;
        }) != "");
}

TEST_CASE("a global lock whose words are not changed atomically is caught") {
  CHECK(fault({{"L", "E"}},
              [](Request& r) { r.torn = r.kind == Kind::kFetchAdd && r.word == ControlBlock::kGlobalLock; }) != "");
  CHECK(fault({{"L", "E"}}, [](Request& r) { r.torn = r.kind == Kind::kFetchAdd && is_drain(r.word); }) == kDeadlock);
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) { r.torn = r.kind == Kind::kCompareAndSwap; }) == kDeadlock);
}

TEST_CASE("a global lock whose waiters say the wrong group in their slot is caught") {
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (r.kind == Kind::kCompareAndSwap && is_slot(r.word) && RingSlot::state(r.operand) == RingSlot::kWaiting)
            r.operand ^= RingSlot::kExclusive;
        }) != "");
}

TEST_CASE("a global lock whose hand-off in a slot names the wrong group is caught") {
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (r.kind == Kind::kCompareAndSwap && is_slot(r.word) && RingSlot::state(r.operand) == RingSlot::kHandOff)
            r.operand ^= RingSlot::kExclusive;
        }) != "");
}

TEST_CASE("a global lock that offers the hand-off in the wrong slot is caught") {
  CHECK(fault({{"L", "E", "L"}}, [](Request& r) {
          if (r.kind == Kind::kCompareAndSwap && is_slot(r.word) && RingSlot::state(r.operand) == RingSlot::kHandOff)
            r.word = ControlBlock::global_lock_ring_word((r.word - ControlBlock::kGlobalLockRing) / 8 + 1);
        }) != "");
}

}  // namespace farside::global_lock_explorer_test
