// SPDX-License-Identifier: BSD-3-Clause
// The lock in all interleavings of a few ranks, with a ring of 1 slot: ranks wait beyond its end, and meet in a slot.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#define FARSIDE_SMALL_RING 1
#include "tests/epochs/small_ring.hpp"

#include "tests/epochs/lock_program.hpp"

namespace {

using namespace farside::explore;

void must_hold(const LockCase& each, const Options& options = {}) {
  const Report report = explore_locks(each, options);
  for (const std::string& script : each.scripts) UNSCOPED_INFO(script);
  INFO(report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
}

void mixes_must_hold(const Options& options, bool wraps = false) {
  each_mix_of_three([&](const std::vector<std::string>& scripts) { must_hold({scripts, {}, wraps}, options); });
}

}  // namespace

TEST_CASE("with a ring of 1 slot, three ranks that lock one twice exclude each other and all finish, in every mix") {
  mixes_must_hold({});
}

TEST_CASE("a lock with a ring of 1 slot holds when own words show their changes late and tickets wrap") {
  mixes_must_hold({.late = true}, true);
}

TEST_CASE("a lock with a ring of 1 slot holds when no interleaving is left out for being like another") {
  must_hold({{"S0 S0", "X0 X0", "S0 X0"}}, {.reduce = false});
}

TEST_CASE("with a ring of 1 slot, more rounds and more ranks hold") {
  must_hold({{"X0 S0 X0", "S0 X0 S0", "X0 X0 S0"}});
  must_hold({{"X0", "X0", "S0", "S0"}}, {.late = true});
  must_hold({{"X0", "X0", "X0", "S0"}});
  must_hold({{"X0 X0", "X0", "S0", "S0"}});
}

TEST_CASE("a turn that does not make a later ticket give the slot back waits for ever") {
  const Sabotage ask_in_vain = [](Request& r) {
    const bool takes_back = r.kind == Kind::kCompareAndSwap && r.compare != 0;
    if (takes_back) r.compare = 0;
  };
  const Report report = explore_locks({{"X0 X0", "X0", "S0 S0"}}, {.sabotage = ask_in_vain});
  CHECK(report.failure == "endless: the last state of this trace can go on for ever, but never to the end");
}

TEST_CASE("a later ticket whose slot was taken back without a word is caught") {
  const Sabotage keep_silent = [](Request& r) {
    r.dropped = r.kind == Kind::kWrite && LockProgram::own_word(r.word) && r.operand == farside::epochs::kAgain;
  };
  const Report report = explore_locks({{"X0 X0", "X0", "S0 S0"}}, {.sabotage = keep_silent});
  CHECK(report.failure == "deadlock: nothing can happen any more, and not all are done");
}
