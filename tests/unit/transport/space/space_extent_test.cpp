// SPDX-License-Identifier: BSD-3-Clause
// What a rank learns of the others: the bytes of their data and their units, where the ranks differ in them.
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"

namespace farside::space_extent_test {

using namespace farside::testing;

namespace {

std::uint64_t questions_served() { return counted(RouteKind::kFabric, Counted::kHandler); }

// Runs the program on three ranks, whose data and units differ.
void run_differing(const char* routes, bool dynamic, const std::function<void(Ranks&, Space&)>& program) {
  INFO(routes);
  expect_well(run_processes(3, [&](Ranks& ranks) {
    use_routes(routes);
    {
      Space::Request request = space_request(kControlBytes, 4096 * (static_cast<std::uint64_t>(ranks.rank()) + 1));
      request.unit = 10 + static_cast<std::uint32_t>(ranks.rank());
      request.dynamic = dynamic;
      const OpenSpace open = make_space(ranks, request);
      program(ranks, *open.space);
      ranks.check(open.space->flush_all().ok(), "the last flush succeeds");
      ranks.barrier();
    }
    ranks.barrier();
    Process::instance().shut_down();
    ranks.barrier();
  }));
}

}  // namespace

TEST_CASE("ranks that differ know the bytes and the unit of each other, after one question where it takes one") {
  for (const char* routes : {"mapped", "fabric"}) {
    run_differing(routes, false, [&](Ranks& ranks, Space& space) {
      for (int round = 0; round < 3; ++round) {
        for (int r = 0; r < 3; ++r) {
          const Result<Space::Extent> extent = space.extent(r);
          ranks.check(extent.ok() && extent.value().bytes == 4096 * (static_cast<std::uint64_t>(r) + 1) &&
                          extent.value().unit == 10 + static_cast<std::uint32_t>(r),
                      fmt::format("the extent of rank {}", r));
        }
      }
      ranks.barrier();
      const std::uint64_t expected = space.uses(RouteKind::kFabric) ? 2 : 0;
      ranks.check(questions_served() == expected, "each of the others has asked once");
      ranks.barrier();
      // At the end of the data of each.
      const auto own = static_cast<std::uint64_t>(ranks.rank());
      for (int r = 0; r < 3; ++r) {
        const std::uint64_t end = 4096 * (static_cast<std::uint64_t>(r) + 1);
        ranks.check(space.route(r).put(r, end - 8 * (own + 1), &own, 8).ok(), "put");
      }
      ranks.check(space.flush_all().ok(), "flush");
      ranks.barrier();
      for (std::uint64_t r = 0; r < 3; ++r) {
        std::uint64_t word = 9;
        read_memory(space.data() + 4096 * (own + 1) - 8 * (r + 1), &word, sizeof word);
        ranks.check(word == r, "what was put is here");
      }
    });
  }
}

TEST_CASE("an operation on a rank that differs asks for its description by itself") {
  run_differing("fabric", false, [](Ranks& ranks, Space& space) {
    const int next = (ranks.rank() + 1) % 3;
    std::array<std::byte, 2 * kMostGetInRing> bytes{};  // a smaller get is a message itself
    ranks.check(space.route(next).get(next, 0, bytes.data(), bytes.size()).ok() && space.route(next).flush(next).ok(),
                "get");
    ranks.check(space.route(next).get(next, 8, bytes.data(), bytes.size()).ok() && space.route(next).flush(next).ok(),
                "get");
    ranks.barrier();
    ranks.check(questions_served() == 1, "the other one has asked once");
    ranks.barrier();
  });
}

TEST_CASE("ranks of a dynamic space differ in their units only, and their data have no bytes of their own") {
  for (const char* routes : {"mapped,cma", "fabric"}) {
    run_differing(routes, true, [](Ranks& ranks, Space& space) {
      for (int r = 0; r < 3; ++r) {
        const Result<Space::Extent> extent = space.extent(r);
        ranks.check(
            extent.ok() && extent.value().bytes == 0 && extent.value().unit == 10 + static_cast<std::uint32_t>(r),
            fmt::format("the extent of rank {}", r));
      }
      ranks.barrier();
    });
  }
}

TEST_CASE("all ranks know the lowest one that has data, on any node") {
  struct Case {
    const char* routes;
    int ranks;
    int lowest;  // -1: no rank has data
  };
  // With 70 ranks a rank has two digits.
  const Case cases[] = {{"mapped", 3, -1},  {"mapped", 3, 0},   {"mapped", 3, 1},   {"mapped", 3, 2},
                        {"fabric", 3, -1},  {"fabric", 3, 0},   {"fabric", 3, 1},   {"fabric", 3, 2},
                        {"mapped", 70, 3},  {"mapped", 70, 63}, {"mapped", 70, 64}, {"mapped", 70, 69},
                        {"mapped", 70, -1}, {"mapped", 1, 0},   {"mapped", 1, -1}};
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

TEST_CASE("a rank that is gone before it has described itself is an error of the question") {
  expect_well(run_processes(
                  3,
                  [](Ranks& ranks) {
                    use_routes("fabric");
                    setenv("FARSIDE_PEER_TIMEOUT", "2", 1);
                    Space::Request request =
                        space_request(kControlBytes, 4096 * (static_cast<std::uint64_t>(ranks.rank()) + 1));
                    const OpenSpace open = make_space(ranks, request);
                    const auto pids = ranks.all_gather(getpid());
                    if (ranks.rank() == 1) {
                      ranks.barrier();
                      while (true) raise(SIGSTOP);
                    }
                    ranks.barrier();
                    if (ranks.rank() == 2) {
                      await_dead(pids[0]);
                      _exit(0);
                    }
                    await_stopped(pids[1]);
                    kill(pids[1], SIGKILL);
                    await_dead(pids[1]);
                    const Result<Space::Extent> gone = open.space->extent(1);
                    ranks.check(!gone.ok() && gone.error().kind == ErrorKind::kPeer && gone.error().rank == 1,
                                "the error names the rank");
                    ranks.check(open.space->extent(2).ok(), "another one describes itself");
                    _exit(ranks.failures() == 0 ? 0 : 1);
                  },
                  30),
              "rank 1: ended by signal 9\n");
}

}  // namespace farside::space_extent_test
