// SPDX-License-Identifier: BSD-3-Clause
// A rank dies at any moment, in all interleavings of a few ranks: no living one waits for ever, what the dead one held
// excludes the others for ever, and locks in which it had no part go on. Broken rules are caught.
#include <string>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/death_cases.hpp"

namespace farside::lock_death_explorer_test {

namespace {

using namespace farside::explore;

const std::string kGivesUpTooMuch = "a rank gives up a lock in which no dead one had a part";

template <class Table = RightTable>
std::string fault(const LockTableCase& each, GivesUp gives_up, Options options = {}) {
  options.shorten = false;
  return explore_death<Table>(each, gives_up, options).failure;
}

}  // namespace

TEST_CASE("when a rank dies, waits for its locks end, what it held excludes others, and other locks go on") {
  for (const bool lost : {false, true}) {
    for (const char* victim : {"X0", "S0"}) {
      for (const char* other : {"X0 X1", "S0 X1", "X1(X0)"}) deaths_must_hold(death_case({victim, other}), lost);
    }
  }
  CHECK(deaths_must_hold(death_case({"X0", "X0 X0"})).gave_up > 0);
  deaths_must_hold(death_case({"X0", "X0", "X0"}));
  deaths_must_hold(death_case({"X0", "S0", "X0"}));
  deaths_must_hold(death_case({"S0", "X0", "S0"}));
  deaths_must_hold(death_case({"X0", "X1(X0)", "X1"}));
}

TEST_CASE("when a rank dies with the global lock, exclusive locks of other ranks go on without it") {
  for (const bool lost : {false, true}) {
    deaths_must_hold(death_case({"X0", "L X1"}, true), lost);
    deaths_must_hold(death_case({"L", "X0 X1"}, true), lost);
  }
  deaths_must_hold(death_case({"L", "X0", "L"}, true));
  CHECK(deaths_must_hold(death_case({"X0", "L", "X1"}, true), false, {GivesUp::kWhatIsLost}).without_global > 0);
}

TEST_CASE("when a rank dies in a lock_all of each rank's lock, or in a near lock, the others do not wait") {
  LockTableCase all = death_case({"L", "X0 L"});
  all.ranks = {2, 0};
  all.job = 3;
  all.mistakes.no_data = true;
  deaths_must_hold(all);
  deaths_must_hold(death_case({"X1", "X1 X0"}, false, 1));
  deaths_must_hold(death_case({"X1", "X1", "X1"}, false, 1));
  deaths_must_hold(death_case({"X1", "X1"}, true, 1));
}

TEST_CASE("when two ranks die, each at any moment, the others do not wait") {
  const std::vector<GivesUp> kWhatIsLost{GivesUp::kWhatIsLost};
  deaths_must_hold(death_case({"X0", "X0", "X0"}), false, kWhatIsLost, 4 | 8);
  deaths_must_hold(death_case({"S0", "X0", "S0"}), true, kWhatIsLost, 4 | 8);
  deaths_must_hold(death_case({"X1", "X1", "X1"}, false, 1), false, kWhatIsLost, 4 | 8);
}

// The threads of a process stir one another, so there is always something else that happens (kWhatSeemsLost).
TEST_CASE("when a process with two threads dies, or another one beside it, no thread waits") {
  deaths_must_hold(death_case({"X0", "X1", "X0(X1)"}, false, 0, {2, 2, 3}), false, {GivesUp::kWhatIsLost});
  deaths_must_hold(death_case({"X0", "X0", "S0"}, false, 0, {2, 3, 3}), false, {GivesUp::kWhatIsLost});
}

TEST_CASE("when a rank dies with a deferred lock, or before one, the others do not wait") {
  for (const bool lost : {false, true}) {
    deaths_must_hold(death_case({"D0", "X0 D0"}), lost);
    deaths_must_hold(death_case({"X0", "D0"}), lost);
    deaths_must_hold(death_case({"d0(X1)", "D0 X1"}), lost);
    deaths_must_hold(death_case({"D0", "X0", "d0"}), lost);
  }
}

TEST_CASE("a rank that gives up while the lock moves, or while a living rank holds it, is caught") {
  CHECK(fault(death_case({"X1", "X0", "X0"}), GivesUp::kWhatMoves) == kGivesUpTooMuch);
  LockTableCase nested = death_case({"X1", "X0(X1)", "X0"});
  CHECK(fault(nested, GivesUp::kWhatSeemsLost) == "");
  nested.mistakes.living_as_dead = true;
  CHECK(fault(nested, GivesUp::kWhatSeemsLost) == kGivesUpTooMuch);
}

TEST_CASE("a rank that gives up and uses its wake word again is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    void end_wake_word(std::uint32_t word, bool) { RightTable::end_wake_word(word, false); }
  };
  const LockTableCase each = death_case({"X1", "X0 X1", "X0"});
  CHECK(fault<Broken>(each, GivesUp::kAnything) == "two hold locks that exclude each other");
}

TEST_CASE("an exclusive lock that does without the global lock while a lock_all may still acquire it is caught") {
  const Sabotage keep = [](Request& r) {
    r.dropped = r.kind == Kind::kCompareAndSwap && r.word == ControlBlock::kGlobalLockDrain + 8;
  };
  LockTableCase each = death_case({"X0", "L", "X1"}, true);
  each.ranks = {3, 0, 1};
  each.dead = true;
  CHECK(fault(each, GivesUp::kAnything, {.sabotage = keep}) == "an exclusive lock meets a lock_all");
  // It does not see that a lock_all is present.
  const Sabotage unseen = [](Request& r) {
    if (r.kind == Kind::kRead && r.word == ControlBlock::kGlobalLock) r.word = ControlBlock::kNear;
  };
  each = death_case({"L", "X1"}, true);
  each.ranks = {3, 1};
  each.dead = true;
  CHECK(fault(each, GivesUp::kAnything) == "");
  CHECK(fault(each, GivesUp::kAnything, {.sabotage = unseen}) == "an exclusive lock meets a lock_all");
}

}  // namespace farside::lock_death_explorer_test
