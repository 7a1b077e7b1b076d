// SPDX-License-Identifier: BSD-3-Clause
// The barrier of fence in all interleavings of two to four ranks; and barriers with one defect, each of which must be
// caught.
#include <string>

#include <catch2/catch.hpp>

#include "tests/epochs/barrier_program.hpp"

namespace {

using namespace farside::explore;

void must_hold(int ranks, std::uint64_t barriers, const Options& options) {
  const Report report = explore_barriers(ranks, barriers, options);
  INFO(ranks << " ranks, " << barriers << " barriers: " << report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
}

std::string fault(int ranks, const Sabotage& sabotage) {
  return explore_barriers(ranks, 2, {.sabotage = sabotage}).failure;
}

const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";
const std::string kEarly = "a rank leaves a barrier that another has not entered";

}  // namespace

TEST_CASE("no rank leaves a barrier before all have entered it, and all leave, in successive barriers") {
  for (const bool late : {false, true}) {
    must_hold(1, 2, {.late = late});
    must_hold(2, 3, {.late = late});
    must_hold(3, 3, {.late = late});
    must_hold(4, 2, {.late = late});
  }
}

TEST_CASE("a barrier holds when no interleaving is left out for being like another") {
  must_hold(3, 2, {.late = true, .reduce = false});
}

TEST_CASE("a barrier that skips the wait of its last round is caught") {
  CHECK(fault(3, [](Request& r) {
          if (r.kind == Kind::kOwnRead && r.word == ControlBlock::barrier_word(1)) r.operand = 2 << 8;
        }) == kEarly);
}

TEST_CASE("a barrier that a rank enters twice for one is caught") {
  CHECK(fault(2, [](Request& r) {
          if (r.kind == Kind::kWrite) r.operand += 1 << 8;
        }).find("what its peer has not said") != std::string::npos);
}

TEST_CASE("a barrier whose arrival is lost is caught") {
  CHECK(fault(3, [](Request& r) {
          r.dropped = r.kind == Kind::kWrite && r.word == ControlBlock::barrier_word(1);
        }) == kDeadlock);
}

TEST_CASE("a barrier whose peers, one ahead, forget what they said before is caught") {
  CHECK(fault(2, [](Request& r) {
          if (r.kind == Kind::kWrite) r.operand &= ~std::uint64_t{0xf0};
        }) == "a rank hears what its peer has not said in this barrier");
}
