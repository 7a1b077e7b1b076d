// SPDX-License-Identifier: BSD-3-Clause
// Connections: which requests are accepted, and that both sides may begin at once.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"
#include "tests/unit/transport/fabric/caller.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::connections_test {

using namespace farside::testing;

namespace {

int open_sockets() {
  int sockets = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockets += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:") ? 1 : 0;
  }
  return sockets;
}

// Returns the result of a connection request with these private data by a process that is not of the job.
int try_connect(const FabricAddress& address, std::span<const std::byte> data) {
  return Caller(address, data).outcome();
}

// Returns whether the provider is tcp. If FARSIDE_TEST_PROVIDER names another provider, prints that the test is
// skipped: it counts sockets, or connects over TCP.
bool over_tcp() {
  const std::string_view provider = test_provider();
  if (provider == "tcp") return true;
  REQUIRE(std::getenv("FARSIDE_TEST_PROVIDER") != nullptr);
  WARN("skipped, as it is about tcp, and FARSIDE_TEST_PROVIDER is " << provider);
  return false;
}

}  // namespace

// By counting sockets: over tcp only.
TEST_CASE("both sides may connect to each other at once: one connection for each pair, and nothing is lost") {
  if (!over_tcp()) return;
  constexpr int kRanks = 6;
  for (unsigned round = 0; round < 12; ++round) {
    INFO("round " << round);
    expect_well(run_with_space(kRanks, Variant::kFabric, 8 * kRanks, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 8 * kRanks, std::byte{0});
      const int before = open_sockets();
      std::vector<int> peers;
      for (int r = 0; r < kRanks; ++r) {
        if (r != ranks.rank()) peers.push_back(r);
      }
      // In the same order of pairs, or in any.
      if (round % 2 == 0) {
        std::sort(peers.begin(), peers.end(), [&](int a, int b) { return (a ^ ranks.rank()) < (b ^ ranks.rank()); });
      } else {
        std::shuffle(peers.begin(), peers.end(), std::mt19937(round * kRanks + static_cast<unsigned>(ranks.rank())));
      }
      ranks.barrier();
      const std::uint64_t mine = 100 + static_cast<std::uint64_t>(ranks.rank());
      for (const int r : peers)
        space.good(space->route(r).put(r, 8 * static_cast<std::uint64_t>(ranks.rank()), &mine, 8), "put");
      space.good(space->flush_all(), "flush");
      ranks.barrier();
      for (int r = 0; r < kRanks; ++r) {
        const auto word = read_data<std::uint64_t>(space, 8 * static_cast<std::uint64_t>(r));
        ranks.check(word == (r == ranks.rank() ? 0 : 100 + static_cast<std::uint64_t>(r)),
                    "what a peer has put is here");
      }
      // The refusal of a crossing connection request may arrive after the data that was put.
      int more = open_sockets() - before;
      for (int probes = 0; probes < 10'000 && more > kRanks - 1; ++probes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        more = open_sockets() - before;
      }
      ranks.check(more == kRanks - 1, fmt::format("{} sockets more for {} peers", more, kRanks - 1));
      ranks.barrier();
    }));
  }
}

// By counting sockets: over tcp only.
TEST_CASE(
    "of more connections than FARSIDE_CONNECTIONS those that are not used are closed, and made again when they are "
    "needed") {
  if (!over_tcp()) return;
  constexpr int kRanks = 4;
  setenv("FARSIDE_CONNECTIONS", "1", 1);
  expect_well(run_with_space(kRanks, Variant::kFabric, 8 * kRanks, [&](Ranks& ranks, SpaceFixture& space) {
    const int before = open_sockets();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      for (int r = 0; r < kRanks; ++r) {
        if (r != ranks.rank())
          space.good(space->route(r).put(r, 8 * static_cast<std::uint64_t>(ranks.rank()), &round, 8), "put");
      }
      space.good(space->flush_all(), "flush");
      ranks.barrier();
      for (int r = 0; r < kRanks; ++r) {
        if (r != ranks.rank())
          ranks.check(read_data<std::uint64_t>(space, 8 * static_cast<std::uint64_t>(r)) == round,
                      "what a peer has put is here");
      }
      int more = open_sockets() - before;
      for (int probes = 0; probes < 10'000 && more > 1; ++probes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        more = open_sockets() - before;
      }
      ranks.check(more <= 1, fmt::format("{} sockets more for one connection", more));
      ranks.barrier();
    }
  }));
  unsetenv("FARSIDE_CONNECTIONS");
}

// The progress thread backs off while the application polls, but it still serves connections.
TEST_CASE("a process that polls without a pause accepts connections") {
  expect_well(run_with_space(2, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    ranks.barrier();
    if (ranks.rank() == 1) {
      const std::uint64_t word = 7;
      space.good(space->route(0).put(0, 8, &word, 8), "put");
      space.good(space->flush_all(), "flush");
    } else {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (read_data<std::uint64_t>(space, 8) != 7 && std::chrono::steady_clock::now() < end)
        Process::instance().poll();
      ranks.check(read_data<std::uint64_t>(space, 8) == 7, "what was put is here");
    }
    ranks.barrier();
  }));
}

TEST_CASE("a connection without the secret is refused, and the job continues") {
  if (!over_tcp()) return;
  expect_well(run_with_space(2, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    const FabricAddress address = use_best_endpoint().value()->address();
    if (ranks.rank() == 0) {
      CallerHello hello;
      const auto bytes = [&] { return hello.bytes(); };
      hello.secret = address.secret + 1;
      ranks.check(try_connect(address, bytes()) == FI_ECONNREFUSED, "a wrong secret");
      ranks.check(try_connect(address, {}) == FI_ECONNREFUSED, "no hello");
      ranks.check(try_connect(address, std::vector(200, std::byte{0x46})) == FI_ECONNREFUSED, "garbage");
      hello.secret = address.secret;
      hello.version = 3;
      ranks.check(try_connect(address, bytes()) == FI_ECONNREFUSED, "another version");
      hello.version = 4;
      ranks.check(try_connect(address, bytes()) == 0,
                  "who knows it comes in: the others were refused for what they said");
    }
    const std::uint64_t word = 7;
    space.good(space->route(1 - ranks.rank()).put(1 - ranks.rank(), 8, &word, 8), "put");
    space.good(space->flush_all(), "flush");
    ranks.barrier();
    ranks.check(read_data<std::uint64_t>(space, 8) == 7, "what was put is here");
    ranks.barrier();
  }));
}

}  // namespace farside::connections_test
