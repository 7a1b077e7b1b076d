// SPDX-License-Identifier: BSD-3-Clause
// The creation of a Space: why it needs which route, what the ranks learn of each other, and what it asks of a process.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space/make_space.hpp"

namespace farside::space_life_test {

using namespace farside::testing;

namespace {

// Returns whether there are `least` threads of farside or more, and all of them block signals (proc(5)).
bool threads_block_signals(int least) {
  constexpr std::array<std::string_view, 3> kOwnThreads{"farside", "farside-node", "farside-opener"};
  int threads = 0;
  bool good = true;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string thread_name;
    std::ifstream comm(task.path() / "comm"), status(task.path() / "status");
    std::getline(comm, thread_name);
    if (std::ranges::find(kOwnThreads, thread_name) == kOwnThreads.end()) continue;
    ++threads;
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::strtoull(line.c_str() + 7, nullptr, 16);
      for (const int signal : {SIGUSR1, SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGCHLD})
        good = good && (blocked >> (signal - 1) & 1) != 0;
    }
  }
  return good && threads >= least;
}

}  // namespace

TEST_CASE("a peer that cannot be mapped needs the fabric, and why is said") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("mapped");
    const std::unique_ptr<NodeGroup> both = make_node(ranks);
    const std::unique_ptr<NodeGroup> alone = NodeGroup::alone(ranks.rank());
    const auto reach_of = [&](NodeGroup& node, void* memory) {
      Space::Request request = space_request(kControlBytes, 4096, memory);
      request.rank = ranks.rank();
      request.ranks = 2;
      SpaceMaker maker({.request = request});
      ranks.check(maker.make_memory(node).ok(), "the memory is made");
      ranks.barrier();
      return maker;
    };
    const auto contains = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    const SpaceMaker mapped = reach_of(*both, nullptr);
    ranks.check(!mapped.vote.needs_fabric && !mapped.vote.uses_cma, "mapped");
    const SpaceMaker apart = reach_of(*alone, nullptr);
    ranks.check(apart.vote.needs_fabric && contains(apart.why, "another node"), "another node");
    static std::array<std::byte, 4096> memory;
    const SpaceMaker on_private = reach_of(*both, memory.data());
    ranks.check(on_private.vote.needs_fabric && !on_private.vote.uses_cma && contains(on_private.why, "cma"),
                "cma is not allowed");
  }));
}

TEST_CASE("cma without mapped reaches oneself, and says what is missing for others") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("cma");
    const std::unique_ptr<NodeGroup> node = make_node(ranks);
    static std::array<std::byte, 4096> memory;
    for (void* data : {static_cast<void*>(memory.data()), static_cast<void*>(nullptr)}) {
      Space::Request request = space_request(kControlBytes, 4096, data);
      request.rank = ranks.rank();
      request.ranks = 2;
      SpaceMaker maker({.request = request});
      ranks.check(maker.make_memory(*node).ok(), "the memory is made");
      ranks.barrier();
      const std::unique_ptr<Space> space = maker.finish({});
      ranks.check(maker.vote.needs_fabric && maker.why.find("cma without mapped") != std::string::npos, "why is said");
      ranks.check(space->kind(ranks.rank()) == RouteKind::kSelf, "one's own memory needs no route");
      const std::uint64_t sent = 7;
      std::uint64_t got = 0;
      Route& own = space->route(ranks.rank());
      ranks.check(own.carry_out(ranks.rank(), DataOperation::put(8, &sent, 8)).ok() &&
                      own.carry_out(ranks.rank(), DataOperation::get(8, &got, 8)).ok() && got == 7,
                  "and is reached");
    }
  }));
}

TEST_CASE("a process is open to its peers only if some of them may reach its private data") {
  const auto open = [] { return Process::instance().peer_permission().needed(); };
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_processes(2, [&](Ranks& ranks) {
      ranks.check(!open(), "at first it is not");
      {
        SpaceFixture space(ranks, variant, 4096);
        ranks.check(open() == (variant == Variant::kCma), "only for cma");
        ranks.barrier();
      }
      Process::instance().shut_down();
    }));
  }
  // Alone.
  expect_well(run_processes(1, [&](Ranks& ranks) {
    use_routes("mapped,cma");
    static std::array<std::byte, 4096> memory;
    const OpenSpace alone = make_space(ranks, space_request(kControlBytes, memory.size(), memory.data()));
    ranks.check(alone.space->data() == memory.data() && !open(), "nobody needs it");
  }));
}

TEST_CASE("threads of farside block the signals of the application, whatever its spaces use") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 64, [&](Ranks& ranks, SpaceFixture& space) {
      const int other = 1 - ranks.rank();
      const std::uint64_t word = 1;
      space.good(space->route(other).carry_out(other, DataOperation::put(0, &word, sizeof word)), "put");
      space.good(space->route(other).flush(other), "flush");
      ranks.check(threads_block_signals(variant == Variant::kMapped ? 0 : 1), "they do");
      ranks.barrier();
    }));
  }
}

TEST_CASE("all ranks know the lowest one that has data, on any node") {
  struct Case {
    const char* routes;
    int ranks;
    int lowest;  // -1: no rank has data
  };
  // With 70 ranks a rank has two digits.
  const Case cases[] = {{"mapped", 3, -1},  {"mapped", 3, 1},   {"fabric", 3, 0},   {"fabric", 3, 2},
                        {"mapped", 70, 63}, {"mapped", 70, 64}, {"mapped", 70, -1}, {"mapped", 1, 0}};
  for (const Case& each : cases) {
    INFO(each.routes << ", " << each.ranks << " ranks, the lowest is " << each.lowest);
    expect_well(run_processes(each.ranks, [&](Ranks& ranks) {
      use_routes(each.routes);
      // Of the ranks above the lowest one every second has data.
      const bool has_data = each.lowest >= 0 && ranks.rank() >= each.lowest && (ranks.rank() - each.lowest) % 2 == 0;
      {
        const OpenSpace open = make_space(ranks, space_request(kControlBytes, has_data ? 4096 : 0));
        ranks.check(open.space->lowest_rank_with_data() == each.lowest, "the lowest rank with data");
        ranks.barrier();
      }
      ranks.barrier();
      Process::instance().shut_down();
      ranks.barrier();
    }));
  }
}

}  // namespace farside::space_life_test
