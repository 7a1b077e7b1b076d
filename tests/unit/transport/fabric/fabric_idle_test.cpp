// SPDX-License-Identifier: BSD-3-Clause
// The progress thread of a process that knows many peers and has nothing under way: it sleeps, yet serves at once.
#include <chrono>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"
#include "tests/unit/transport/fabric/silent_listener.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside::fabric_idle_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

// How often the progress thread of this process has gone to sleep so far.
std::uint64_t sleeps() {
  std::uint64_t count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name, word;
    std::ifstream(folder + "/comm") >> name;
    if (name != "farside") continue;
    std::ifstream status(folder + "/status");
    while (status >> word && word != "voluntary_ctxt_switches:") {
    }
    status >> count;
  }
  closedir(tasks);
  return count;
}

}  // namespace

TEST_CASE("a process that knows ten thousand peers and has nothing under way sleeps, and serves a peer at once") {
  expect_well(run_with_space(2, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    auto& fabric = static_cast<Fabric&>(*use_best_endpoint().value());
    for (int i = 0; i < 10'000; ++i) fabric.insert(any_address(1));
    const std::uint64_t word = 7;
    space.good(space->route(1 - ranks.rank()).put(1 - ranks.rank(), 0, &word, 8), "put");
    space.good(space->flush_all(), "flush");
    ranks.barrier();
    std::this_thread::sleep_for(1s);
    const std::uint64_t before = sleeps();
    std::this_thread::sleep_for(2s);
    const std::uint64_t more = sleeps() - before;
    ranks.check(more <= 1, fmt::format("the progress thread woke {} times in two seconds", more));
    ranks.barrier();
    if (ranks.rank() == 1) {
      const auto begin = Clock::now();
      space.good(space->route(0).put(0, 8, &word, 8), "put");
      space.good(space->flush_all(), "flush");
      ranks.check(Clock::now() - begin < 200ms, "a process that sleeps serves at once");
    }
    ranks.barrier();
  }));
}

// Nothing arrives that would wake the progress thread, which alone notices.
TEST_CASE("a peer is abandoned in time if the progress thread was asleep when its first operation began") {
  if (std::string_view(test_provider()) != "tcp") return;
  setenv("FARSIDE_PEER_TIMEOUT", "1", 1);
  expect_well(run_with_space(2, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture&) {
    if (ranks.rank() == 1) return;
    auto& fabric = static_cast<Fabric&>(*use_best_endpoint().value());
    const SilentListener nobody;
    const Peer peer = fabric.insert(nobody.address());
    std::this_thread::sleep_for(1s);
    const auto begin = Clock::now();
    const std::uint64_t word = 7;
    Pending pending;
    const Status status = fabric.write(pending, {peer, {}, 0}, &word, sizeof word);
    ranks.check(!status.ok(), "the operation fails");
    const auto after = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    ranks.check(after > 900ms && after < 4s, fmt::format("after {} ms", after.count()));
  }));
  unsetenv("FARSIDE_PEER_TIMEOUT");
}

}  // namespace farside::fabric_idle_test
