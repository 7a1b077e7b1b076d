// SPDX-License-Identifier: BSD-3-Clause
// The near lock in all interleavings of a few ranks: the lock of a far target and the global lock pass from rank to
// rank of a node, no ticket is overtaken more often than the bound allows, and a broken rule is caught.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/near_lock.hpp"
#include "tests/unit/epochs/lock_table_program.hpp"

namespace farside::near_lock_explorer_test {

namespace {

using namespace farside::explore;
using epochs::NearNext;
using epochs::NearWake;
using Seen = LockTableProgram<>::Seen;

constexpr int kHome = 0;

// Ranks 2 and 3 share a node.
LockTableCase of(std::vector<std::string> scripts, std::vector<int> ranks, int home = RightTable::kNoGlobalLock) {
  return {.scripts = std::move(scripts), .ranks = std::move(ranks), .home = home, .job = 4, .near = 1};
}
Seen must_hold(const LockTableCase& each, const Options& options = {}) {
  Seen seen;
  const Report report = explore_lock_table(each, options, &seen);
  for (const std::string& script : each.scripts) UNSCOPED_INFO(script);
  INFO(report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
  return seen;
}
std::string fault(LockTableCase each, const Sabotage& sabotage, const TableMistakes& mistakes = {}) {
  each.mistakes = mistakes;
  return explore_lock_table(each, {.shorten = false, .sabotage = sabotage}).failure;
}

const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";

}  // namespace

TEST_CASE("the lock of a far target passes from rank to rank of the node, with the global lock or without one") {
  CHECK(must_hold(of({"X1", "X1"}, {2, 3})).near > 0);
  CHECK(must_hold(of({"X1", "X1"}, {2, 3}), {.late = true}).near > 0);
  CHECK(must_hold(of({"X1", "X1"}, {2, 3}, kHome)).near > 0);
  CHECK(must_hold(of({"X1 X1", "X1"}, {2, 3})).near > 0);
}

TEST_CASE("a rank of another node waits no longer than the bound") {
  LockTableCase each = of({"X1", "X1", "X1"}, {2, 3, 1});
  each.mistakes.no_data = true;
  CHECK(must_hold(each).in_a_row == 1);
  each.scripts = {"X1 X1", "X1", "X1"};
  CHECK(must_hold(each).in_a_row == 1);
  each.scripts = {"X1", "X1", "S1"};
  CHECK(must_hold(each).in_a_row == 1);
}

TEST_CASE("locks of different targets, shared locks and inner locks do not use one another's near lock") {
  const Seen seen = must_hold(of({"X1 X0", "X1"}, {2, 3}));
  CHECK(seen.near > 0);
  CHECK(seen.direct > 0);
  must_hold(of({"X1 S1", "X1"}, {2, 3}));
  must_hold(of({"X0(X1)", "X1"}, {2, 3}));
}

TEST_CASE("a lock that sees an exposure, or whose target is lost, leaves the near lock to the next rank") {
  LockTableCase exposed = of({"X1", "X1"}, {2, 3});
  exposed.exposed = 1;
  CHECK(must_hold(exposed).refused > 0);
  CHECK(must_hold(of({"X1 X0"}, {2}), {.may_lose = 2}).failed > 0);
}

// Rule 8, and the rules of near_lock.hpp.
TEST_CASE("a lock that is handed on before its data are complete is caught") {
  CHECK(fault(of({"X1", "X1"}, {2, 3}), {}, {.overtakes_data = true}) == "a lock is held before the data of the last");
}

TEST_CASE("a lock that is handed on more often in a row than the bound is caught") {
  CHECK(fault(of({"X1 X1", "X1 X1", "X1"}, {2, 3, 1}), {}, {.too_many_near = 2, .no_data = true}) ==
        "a ticket was overtaken more often than the bound allows");
}

TEST_CASE("a lock that is handed on without the global lock, or with a wrong token, is caught") {
  const Sabotage keep = [](Request& r) {
    if (r.kind == Kind::kWrite && r.word == ControlBlock::kNearWake && NearWake::holds(r.operand))
      r.operand = NearWake::kLead;
  };
  CHECK(fault(of({"X1", "X1"}, {2, 3}), keep) == kDeadlock);
}

TEST_CASE("a near lock that a rank enters for another target is caught") {
  const Sabotage same = [](Request& r) {
    if (r.word != ControlBlock::kNear || r.kind != Kind::kCompareAndSwap) return;
    if (r.compare != 0) r.compare = (r.compare & 0xffffffff) | std::uint64_t{1} << 32;
    if (r.operand != 0) r.operand = (r.operand & 0xffffffff) | std::uint64_t{1} << 32;
  };
  CHECK(fault(of({"X1 X0", "X1"}, {2, 3}), same) != "");
}

TEST_CASE("a rank that leaves without its mark, or does not tell the next one to lead, is caught") {
  const Sabotage unmarked = [](Request& r) {
    if (r.word == ControlBlock::kNearNext && r.operand == NearNext::kGone) r.dropped = true;
  };
  CHECK(fault(of({"X1", "X1"}, {2, 3}), unmarked) == kDeadlock);
  const Sabotage silent = [](Request& r) {
    if (r.word == ControlBlock::kNearWake && r.operand == NearWake::kLead) r.dropped = true;
  };
  CHECK(fault(of({"X1", "X1"}, {2, 3}), silent) == kDeadlock);
}

}  // namespace farside::near_lock_explorer_test
