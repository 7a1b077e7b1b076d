// SPDX-License-Identifier: BSD-3-Clause
// The progress thread of a process that has had nothing under way for a while.
#include <chrono>
#include <cstdlib>
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
