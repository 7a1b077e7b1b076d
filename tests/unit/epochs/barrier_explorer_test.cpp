// SPDX-License-Identifier: BSD-3-Clause
// The barrier of fence in all interleavings of two to four ranks, flat and by nodes; and barriers with one defect, each
// of which must be caught.
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/barrier_program.hpp"
#include "tests/unit/epochs/failing_memory.hpp"

namespace farside::barrier_explorer_test {

namespace {

using namespace farside::explore;
using farside::epochs::BarrierWord, farside::epochs::FailingMemory, farside::epochs::Words;

void must_hold(const Schedules& schedules, std::uint64_t barriers, const Options& options) {
  const Report report = explore_barriers(schedules, barriers, options);
  INFO(schedules.size() << " ranks, " << barriers << " barriers: " << report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
}

std::string fault(const Schedules& schedules, const Sabotage& sabotage) {
  return explore_barriers(schedules, 2, {.sabotage = sabotage}).failure;
}

const Schedules kTwoNodes = schedules_by_nodes({{0, 1}, {2, 3}});

const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";
const std::string kEarly = "a rank leaves a barrier that another has not entered";
const std::string kNotSaid = "a rank hears what its peer has not said in this barrier";

}  // namespace

TEST_CASE("no rank leaves a barrier before all have entered it, and all leave, in successive barriers") {
  for (const bool late : {false, true}) {
    must_hold(flat_schedules(1), 2, {.late = late});
    must_hold(flat_schedules(2), 3, {.late = late});
    must_hold(flat_schedules(3), 3, {.late = late});
    must_hold(flat_schedules(4), 2, {.late = late});
  }
}

TEST_CASE("the same holds for barriers by nodes") {
  for (const bool late : {false, true}) {
    must_hold(kTwoNodes, 3, {.late = late});
    must_hold(schedules_by_nodes({{0, 2}, {1, 3}}), 2, {.late = late});
    must_hold(schedules_by_nodes({{0}, {1, 2, 3}}), 3, {.late = late});
    must_hold(schedules_by_nodes({{0, 3}, {1}, {2}}), 2, {.late = late});
    must_hold(schedules_by_nodes({{0, 1, 2, 3}}), 3, {.late = late});
  }
}

TEST_CASE("the first write of a barrier may carry the data of an epoch between two ranks, and not among three") {
  for (const bool late : {false, true}) {
    const Report two = explore_barriers(flat_schedules(2), 3, {.late = late}, true);
    INFO(two.text());
    CHECK(two.failure.empty());
    CHECK(two.ends > 0);
    CHECK(explore_barriers(flat_schedules(3), 2, {.late = late}, true).failure ==
          "a rank leaves a barrier before the data of another have arrived");
  }
}

TEST_CASE("a barrier holds when no interleaving is left out for being like another") {
  must_hold(flat_schedules(3), 2, {.late = true, .reduce = false});
  must_hold(schedules_by_nodes({{0}, {1, 2}}), 2, {.late = true, .reduce = false});
}

TEST_CASE("a barrier that skips a wait is caught") {
  const auto skip = [](std::uint32_t word) {
    return [word](Request& r) {
      if (r.kind == Kind::kOwnRead && r.word == word) r.operand = BarrierWord::make(2, 0, 0);
    };
  };
  CHECK(fault(flat_schedules(3), skip(ControlBlock::barrier_round(1))) == kEarly);
  CHECK(fault(kTwoNodes, skip(ControlBlock::barrier_round(0))) == kEarly);
  CHECK(fault(kTwoNodes, skip(ControlBlock::barrier_arrival(0))) == kEarly);
  CHECK(fault(kTwoNodes, skip(ControlBlock::kBarrierRelease)) == kEarly);
}

TEST_CASE("a barrier that a rank enters twice for one is caught") {
  const auto twice = [](Request& r) {
    if (r.kind == Kind::kWrite) r.operand += BarrierWord::make(1, 0, 0);
  };
  CHECK(fault(flat_schedules(2), twice).find("what its peer has not said") != std::string::npos);
  CHECK(fault(kTwoNodes, twice).find("what its peer has not said") != std::string::npos);
}

TEST_CASE("a barrier whose notification is lost is caught") {
  const auto lose = [](std::uint32_t word) {
    return [word](Request& r) { r.dropped = r.kind == Kind::kWrite && r.word == word; };
  };
  CHECK(fault(flat_schedules(3), lose(ControlBlock::barrier_round(1))) == kDeadlock);
  CHECK(fault(kTwoNodes, lose(ControlBlock::barrier_round(0))) == kDeadlock);
  CHECK(fault(kTwoNodes, lose(ControlBlock::barrier_arrival(0))) == kDeadlock);
  CHECK(fault(kTwoNodes, lose(ControlBlock::kBarrierRelease)) == kDeadlock);
}

TEST_CASE("a barrier whose peers, one ahead, forget what they said before is caught") {
  const auto forget = [](Request& r) {
    if (r.kind == Kind::kWrite) r.operand &= ~std::uint64_t{0xff00};
  };
  CHECK(fault(flat_schedules(2), forget) == kNotSaid);
  CHECK(fault(kTwoNodes, forget) == kNotSaid);
}

TEST_CASE("the leader of a node that cannot notify another node releases its own, which hears of the failure") {
  const Schedules schedules = schedules_by_nodes({{0, 1, 2, 3}, {4, 5}});
  Words words;
  std::deque<FailingMemory> memories;
  std::deque<farside::epochs::Barrier<FailingMemory>> barriers;
  for (int rank = 0; rank < 4; ++rank) {
    memories.emplace_back(words, rank).fails = [](int to, std::uint32_t) { return to == 4; };
    barriers.emplace_back(memories.back(), schedules[static_cast<std::size_t>(rank)], BarrierWord::make(1, 0, 0), 0U);
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (auto& barrier : barriers) (void)barrier.advance();
  }
  CHECK(barriers[0].failed_operation() != nullptr);
  for (std::size_t rank = 1; rank < 4; ++rank) {
    INFO("rank " << rank);
    CHECK(barriers[rank].advance());
    CHECK(barriers[rank].failed_operation() == nullptr);
    bool told = false;
    for (std::size_t i = 0; i < barriers[rank].steps().size(); ++i)
      told = told || (barriers[rank].received_flags(i) & BarrierWord::kFailed) != 0;
    CHECK(told);
  }
}

TEST_CASE("a rank that cannot notify another one fails, in whichever round") {
  const Schedules schedules = flat_schedules(5);
  for (const int lost : {1, 2, 4}) {
    INFO("rank 0 cannot notify rank " << lost);
    Words words;
    std::deque<FailingMemory> memories;
    std::deque<farside::epochs::Barrier<FailingMemory>> barriers;
    for (int rank = 0; rank < 5; ++rank) {
      memories.emplace_back(words, rank).fails = [=](int to, std::uint32_t) { return rank == 0 && to == lost; };
      barriers.emplace_back(memories.back(), schedules[static_cast<std::size_t>(rank)], BarrierWord::make(1, 0, 0), 0U);
    }
    for (int turn = 0; turn < 4; ++turn) {
      for (auto& barrier : barriers) (void)barrier.advance();
    }
    CHECK(barriers[0].failed_operation() != nullptr);
    CHECK(!barriers[static_cast<std::size_t>(lost)].advance());
  }
}

TEST_CASE("a rank that abandons a barrier, since a word is lost, releases all that wait for it") {
  for (const bool flat : {true, false}) {
    const Schedules schedules = flat ? flat_schedules(5) : schedules_by_nodes({{0, 1}, {2, 3}, {4}, {5}});
    const std::size_t ranks = schedules.size();
    // Each word that some rank awaits is lost in turn.
    for (std::size_t receiver = 0; receiver < ranks; ++receiver) {
      for (const auto& step : schedules[receiver].steps()) {
        if (step.from < 0) continue;
        INFO("flat: " << flat << "; the word of rank " << step.from << " to rank " << receiver << " is lost");
        Words words;
        std::deque<FailingMemory> memories;
        std::deque<farside::epochs::Barrier<FailingMemory>> barriers;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const int self = static_cast<int>(rank);
          memories.emplace_back(words, self).loses = [=](int to, std::uint32_t word) {
            return self == step.from && to == static_cast<int>(receiver) && word == step.here;
          };
          memories.back().interrupted = [=](int from) { return rank == receiver && from == step.from; };
          barriers.emplace_back(memories.back(), schedules[rank], BarrierWord::make(1, 0, 0), 0U);
        }
        std::vector<bool> over(ranks);
        bool any_abandoned = false;
        for (std::size_t turn = 0; turn < 4 * ranks; ++turn) {
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (over[rank]) continue;
            over[rank] = barriers[rank].advance() || barriers[rank].abandoned();
            // Not before all others are as far as they can be.
            if (turn < 2 * ranks || barriers[rank].awaits_lost() < 0) continue;
            CHECK(rank == receiver);
            CHECK(barriers[rank].awaits_lost() == step.from);
            barriers[rank].abandon();
            any_abandoned = true;
          }
        }
        CHECK(any_abandoned);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          INFO("rank " << rank);
          CHECK(over[rank]);
          CHECK(barriers[rank].abandoned() == (rank == receiver));
        }
      }
    }
  }
}

namespace {

// Runs one barrier, which `late` enters last. Returns whether all ranks have waited for it, and left then.
bool waits_for(const Schedules& schedules, std::size_t late) {
  Words words;
  std::deque<FailingMemory> memories;
  std::deque<farside::epochs::Barrier<FailingMemory>> barriers;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    memories.emplace_back(words, static_cast<int>(rank));
    barriers.emplace_back(memories.back(), schedules[rank], BarrierWord::make(1, 0, 0), 0U);
  }
  // Each turn brings at least one rank on by a step, or no later one does.
  const std::size_t turns = 2 * schedules.size();
  bool waits = true;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      if (rank != late && barriers[rank].advance()) waits = false;
    }
  }
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (auto& barrier : barriers) (void)barrier.advance();
  }
  for (auto& barrier : barriers) waits = waits && barrier.advance();
  return waits;
}

}  // namespace

TEST_CASE("each of up to 40 ranks waits for each other one, flat and on several nodes") {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (const int nodes : {0, 1, 3, 9}) {
      if (nodes > ranks) continue;
      std::vector<std::vector<int>> on(static_cast<std::size_t>(nodes));
      for (int rank = 0; rank < ranks && nodes != 0; ++rank)
        on[static_cast<std::size_t>(rank * nodes / ranks)].push_back(rank);
      const Schedules schedules = nodes == 0 ? flat_schedules(ranks) : schedules_by_nodes(on);
      for (std::size_t late = 0; late < schedules.size(); ++late) {
        INFO(ranks << " ranks on " << nodes << " nodes (0: flat), rank " << late << " is late");
        REQUIRE(waits_for(schedules, late));
      }
    }
  }
}

TEST_CASE("all ranks learn whose operations have failed, flat and on several nodes") {
  for (const Schedules& schedules :
       {flat_schedules(2), flat_schedules(7), schedules_by_nodes({{0, 1}, {2, 3, 4}, {5}})}) {
    for (std::size_t failed = 0; failed < schedules.size(); ++failed) {
      Words words;
      std::deque<FailingMemory> memories;
      std::deque<farside::epochs::Barrier<FailingMemory>> barriers;
      for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
        const std::uint64_t word = BarrierWord::make(1, 0, 0);
        memories.emplace_back(words, static_cast<int>(rank));
        barriers.emplace_back(memories.back(), schedules[rank],
                              rank == failed ? BarrierWord::with_incomplete(word, rank) : word, 0U);
      }
      for (std::size_t turn = 0; turn < 2 * schedules.size(); ++turn) {
        for (auto& barrier : barriers) (void)barrier.advance();
      }
      for (auto& barrier : barriers) {
        CHECK(barrier.advance());
        CHECK(BarrierWord::current_flags(barrier.word()) == BarrierWord::kIncomplete);
        CHECK(BarrierWord::rank(barrier.word()) == failed);
      }
    }
  }
}

TEST_CASE("the word of a barrier keeps what the preceding one said, and its count wraps") {
  const std::uint64_t last = BarrierWord::with_incomplete(BarrierWord::make(~std::uint64_t{0}, 1, 2), 524'222);
  const std::uint64_t word = BarrierWord::next(last, 4);
  CHECK(BarrierWord::count(word) == 0);
  CHECK(BarrierWord::current_flags(word) == 4);
  CHECK(BarrierWord::preceding_flags(word) == (1 | BarrierWord::kIncomplete));
  CHECK(BarrierWord::flags(word, BarrierWord::count(last)) == (1 | BarrierWord::kIncomplete));
  CHECK(BarrierWord::rank(word) == 524'222);
  CHECK(BarrierWord::entered(word, last));
  CHECK(BarrierWord::entered(word, word));
  CHECK_FALSE(BarrierWord::entered(last, word));
}

TEST_CASE("the schedules of up to 40 ranks on up to 7 nodes fit each other") {
  for (int nodes = 1; nodes <= 7; ++nodes) {
    for (int ranks = nodes; ranks <= 40; ++ranks) {
      for (const bool round_robin : {false, true}) {
        std::vector<std::vector<int>> on(static_cast<std::size_t>(nodes));
        for (int rank = 0; rank < ranks; ++rank)
          on[static_cast<std::size_t>(round_robin ? rank % nodes : rank * nodes / ranks)].push_back(rank);
        const Schedules schedules = schedules_by_nodes(on);
        // Each word that a rank waits for is written by the rank that it expects, once.
        std::map<std::pair<int, std::uint32_t>, int> written, awaited;
        std::size_t writes = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto steps = schedules[static_cast<std::size_t>(rank)].steps();
          REQUIRE(steps.size() <= farside::epochs::Barrier<FailingMemory>::kMostSteps);
          for (const auto& step : steps) {
            if (step.to >= 0) written[{step.to, step.there}] = rank, ++writes;
            if (step.from >= 0) awaited[{rank, step.here}] = step.from;
          }
        }
        int rounds = 0;
        while (1 << rounds < nodes) ++rounds;
        INFO(ranks << " ranks on " << nodes << " nodes");
        REQUIRE(written == awaited);
        REQUIRE(written.size() == writes);
        REQUIRE(static_cast<int>(writes) == 2 * (ranks - nodes) + nodes * rounds);
      }
    }
  }
}

}  // namespace farside::barrier_explorer_test
