// SPDX-License-Identifier: BSD-3-Clause
// Post, start, complete and wait in all interleavings of a few ranks; and protocols with one defect, each of which
// must be caught.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/exposure_program.hpp"
#include "tests/unit/epochs/failing_memory.hpp"

namespace farside::exposure_explorer_test {

namespace {

using namespace farside::explore;

void must_hold(const std::vector<std::string>& scripts) {
  for (const bool late : {false, true}) {
    const Report report = explore_exposures(scripts, {.late = late});
    for (const std::string& script : scripts) UNSCOPED_INFO(script);
    INFO(report.text());
    CHECK(report.failure.empty());
    CHECK(report.complete);
    CHECK(report.ends > 0);
  }
}

std::string fault(const std::vector<std::string>& scripts, const Sabotage& sabotage) {
  return explore_exposures(scripts, {.sabotage = sabotage}).failure;
}

const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";
const std::string kNoPost = "a start is over without the post of a target";
const std::string kNoData = "a wait is over before the data has arrived";

}  // namespace

TEST_CASE("epochs of one target and two origins are kept apart when they repeat") {
  must_hold({"P12 W P12 W P12 W", "S0 C S0 C S0 C", "S0 C S0 C S0 C"});
}

TEST_CASE("epochs of one origin and two targets are kept apart when they repeat") {
  must_hold({"S12 C S12 C S12 C", "P0 W P0 W P0 W", "P0 W P0 W P0 W"});
}

TEST_CASE("two ranks that expose to and access each other and themselves keep their epochs apart") {
  must_hold({"P0 S0 C W P0 S0 C W"});
  must_hold({"P1 S1 C W P1 S1 C W", "P0 S0 C W P0 S0 C W"});
  must_hold({"P01 S01 C W P01 S01 C W", "P01 S01 C W P01 S01 C W"});
}

TEST_CASE("groups that overlap and change from epoch to epoch keep their epochs apart") {
  must_hold({"P12 W P1 W", "S0 C P2 S0 C W", "S0 C S1 C"});
  must_hold({"P12 S1 C W", "P0 S0 C W S2 C", "S0 C P1 W"});
  must_hold({"S12 C S12 C", "P0 W P03 W", "P0 W P0 W", "S1 C"});
}

TEST_CASE("three ranks that all expose to and access the two others keep their epochs apart") {
  must_hold({"P12 S12 C W", "P02 S02 C W", "P01 S01 C W"});
}

TEST_CASE("epochs hold when no interleaving is left out for being like another") {
  const Report report = explore_exposures({"P12 W P12 W", "S0 C S0 C", "S0 C S0 C"}, {.late = true, .reduce = false});
  INFO(report.text());
  CHECK(report.failure.empty());
}

TEST_CASE("a start that does not take the post's bit off is caught") {
  CHECK(fault({"P1 W P1 W", "S0 C S0 C"},
              [](Request& r) { r.dropped = r.kind == Kind::kOwnAdd && r.word == ControlBlock::kPosted; }) == kNoPost);
}

TEST_CASE("a post that is lost is caught") {
  CHECK(fault({"P1 W", "S0 C"}, [](Request& r) {
          r.dropped = r.kind == Kind::kFetchAdd && r.word == ControlBlock::kPosted;
        }) == kDeadlock);
}

TEST_CASE("posts that overwrite each other's bits are caught") {
  CHECK(fault({"P2 W", "P2 W", "S01 C"},
              [](Request& r) { r.torn = r.kind == Kind::kFetchAdd && r.word == ControlBlock::kPosted; }) == kDeadlock);
}

TEST_CASE("a complete that is told before its data has arrived is caught") {
  CHECK(fault({"P1 W", "S0 E"}, {}) == kNoData);
}

TEST_CASE("a wait for one complete less than there are is caught") {
  CHECK(fault({"P12 W", "S0 C", "S0 C"}, [](Request& r) {
          if (r.kind == Kind::kOwnRead && r.word == ControlBlock::kCompleted) ++r.operand;
        }) == kNoData);
}

TEST_CASE("a complete that counts for two is caught") {
  CHECK(fault({"P12 W", "S0 C", "S0 C"}, [](Request& r) {
          if (r.kind == Kind::kFetchAdd && r.word == ControlBlock::kCompleted) r.operand = 2;
        }) == kNoData);
}

TEST_CASE("a start that waits for no post is caught") {
  CHECK(fault({"P1 W", "S0 C"}, [](Request& r) {
          if (r.kind == Kind::kOwnRead && r.word == ControlBlock::kPosted) r.operand = ~std::uint64_t{0};
        }) == kNoPost);
}

TEST_CASE("a start learns which posts have MPI_MODE_NOPUT, and takes all bits off") {
  using farside::epochs::FailingMemory, farside::epochs::Words;
  using Notify = farside::epochs::Notify<FailingMemory>;
  constexpr int kOrigin = 1, kOther = 3;
  // The last two targets have their bits in another word than the others.
  const std::vector<int> targets = {0, 2, 31, 32, 40};
  const std::vector<int> without_put = {2, 31, 40};
  Words words;
  FailingMemory origin(words, kOrigin);
  std::vector<int> no_put;
  farside::epochs::AwaitPosts<FailingMemory> start(origin, targets, &no_put);
  for (const int target : {kOther, 0, 2, 31, 32, 40}) {
    CHECK(!start.advance());
    FailingMemory memory(words, target);
    const bool puts = target == 0 || target == 32 || target == kOther;
    Notify post(memory, target, puts ? Notify::What::kPosted : Notify::What::kPostedNoPut, std::vector<int>{kOrigin});
    CHECK(post.advance());
  }
  CHECK(start.advance());
  CHECK(no_put == without_put);
  // The post that no start has waited for is left.
  CHECK(words.at(kOrigin, ControlBlock::posted_word(0)) == ControlBlock::posted_bit(kOther));
  CHECK(words.at(kOrigin, ControlBlock::posted_word(40)) == 0);
}

TEST_CASE("a start that does not succeed leaves the posts that have arrived, and knows which one is missing") {
  using farside::epochs::FailingMemory, farside::epochs::Words;
  constexpr int kOrigin = 1;
  const std::vector<int> targets = {0, 2, 3};
  Words words;
  FailingMemory origin(words, kOrigin);
  const auto post = [&](int target) {
    words.at(kOrigin, ControlBlock::posted_word(target)) += ControlBlock::posted_bit(target);
  };
  farside::epochs::AwaitPosts<FailingMemory> start(origin, targets);
  post(0);
  post(3);
  const std::uint64_t posted = words.at(kOrigin, ControlBlock::posted_word(0));
  CHECK(!start.advance());
  const auto all = [](int) { return true; };
  CHECK(start.first_missing(all) == 2);
  CHECK(start.first_missing([](int target) { return target != 2; }) == -1);
  CHECK(words.at(kOrigin, ControlBlock::posted_word(0)) == posted);
  // A post that arrives before the interruption is seen after it.
  CHECK(start.first_missing([&](int target) {
    if (target == 2) post(2);
    return true;
  }) == -1);
  CHECK(start.advance());
  CHECK(words.at(kOrigin, ControlBlock::posted_word(0)) == 0);
}

TEST_CASE("an exposure of another rank is found from the post to the wait") {
  using farside::epochs::FailingMemory, farside::epochs::Words;
  using Mark = farside::epochs::ExposureMark<FailingMemory>;
  Words words;
  FailingMemory target(words, 0), origin(words, 1);
  const auto exposed = [&] {
    farside::epochs::ReadExposure<FailingMemory> look(origin, 0);
    CHECK(look.advance());
    return look.exposed();
  };
  CHECK(!exposed());
  CHECK(Mark::set(target));
  CHECK(exposed());
  Mark::clear(target);
  CHECK(!exposed());
}

TEST_CASE("a post or complete that cannot reach a member fails, and reaches the others") {
  using farside::epochs::FailingMemory, farside::epochs::Words;
  using Notify = farside::epochs::Notify<FailingMemory>;
  Words words;
  FailingMemory memory(words, 0);
  memory.fails = [](int rank, std::uint32_t) { return rank == 2; };
  Notify notify(memory, 0, Notify::What::kCompleted, std::vector<int>{1, 2, 3});
  CHECK(!notify.advance());
  auto* failed = notify.failed_operation();
  REQUIRE(failed != nullptr);
  (void)failed->take_error();
  CHECK(notify.advance());
  CHECK(notify.failed_operation() == nullptr);
  for (const int member : {1, 3}) CHECK(words.at(member, ControlBlock::kCompleted) == 1);
}

}  // namespace farside::exposure_explorer_test
