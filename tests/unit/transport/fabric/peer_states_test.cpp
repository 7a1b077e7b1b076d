// SPDX-License-Identifier: BSD-3-Clause
// The table of peers. The regular work of Fabric, and its work at the end of a connection, visits only peers with
// outstanding operations, not all known peers.
#include <chrono>
#include <map>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/peers.hpp"

namespace farside::peer_states_test {

namespace {

using namespace std::chrono_literals;

struct Known : Peers {
  explicit Known(std::uint64_t count) {
    for (std::uint64_t identity = 1; identity <= count; ++identity) know(identity);
  }
  std::set<Peer> active_ones() const {
    std::set<Peer> found;
    for (const PeerState* const state : active()) found.insert(state->number);
    CHECK(found.size() == active().size());
    return found;
  }
  // As Fabric begins an operation, and as it ends.
  void begin(Peer peer) {
    activate(of(peer));
    begun[peer] = &of(peer).begin();
  }
  void end(Peer peer) {
    ++of(peer).completed;
    not_issued(*begun[peer]);
  }
  std::map<Peer, FabricOperation*> begun;
};

}  // namespace

TEST_CASE("of ten thousand peers only those are visited that are used") {
  Known peers(10'000);
  CHECK(peers.active_ones().empty());
  for (const Peer peer : {9'999, 5, 7}) peers.begin(peer);
  peers.activate(peers.of(5));
  CHECK(peers.active_ones() == std::set<Peer>{5, 7, 9'999});
  peers.end(9'999);
  // Operations to this peer have completed since the last check; after the next check this is no longer so.
  peers.deactivate_unused();
  CHECK(peers.active_ones() == std::set<Peer>{5, 7, 9'999});
  peers.deactivate_unused();
  CHECK(peers.active_ones() == std::set<Peer>{5, 7});
  peers.end(5);
  peers.deactivate_unused();
  peers.deactivate_unused();
  CHECK(peers.active_ones() == std::set<Peer>{7});
  CHECK(peers.of(7).any_in_flight());
  CHECK_FALSE(peers.of(5).any_in_flight());
  CHECK_FALSE(peers.of(5).ready());
  peers.end(7);
  peers.begin(5);
  peers.deactivate_unused();
  peers.deactivate_unused();
  CHECK(peers.active_ones() == std::set<Peer>{5});
  peers.end(5);
}

TEST_CASE("peers do not move, and are found by number and by identity") {
  Known peers(0);
  std::vector<PeerState*> made;
  for (std::uint64_t identity = 10; identity < 5'010; ++identity) made.push_back(&peers.know(identity));
  for (std::size_t i = 0; i < made.size(); ++i) {
    REQUIRE(&peers.of(i) == made[i]);
    REQUIRE(made[i]->number == i);
    REQUIRE(peers.find(10 + i) == made[i]);
  }
}

TEST_CASE("a peer may connect before its address is known") {
  Known peers(0);
  CHECK(peers.find(7) == nullptr);
  PeerState& peer = peers.know(7);
  FabricAddress address;
  address.identity = 7;
  address.secret = 9;
  CHECK(&peers.insert(address) == &peer);
  CHECK(peers.find(7) == &peer);
  CHECK(peer.address.secret == 9);
  CHECK(&peers.insert(FabricAddress{}) != &peer);
}

TEST_CASE("attempts to connect are delayed ever longer, up to a limit") {
  Known peers(1);
  PeerState& peer = peers.of(0);
  const auto now = PeerState::Clock::now();
  for (const auto wait : {1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 100ms, 100ms, 100ms}) {
    peer.back_off(now);
    CHECK(peer.not_before == now + wait);
  }
}

TEST_CASE("a peer that becomes active is quiet from then on, and nothing of before counts") {
  Known peers(1);
  PeerState& state = peers.of(0);
  state.unacknowledged_since = PeerState::Clock::now();
  const auto before = PeerState::Clock::now();
  peers.activate(state);
  CHECK(state.quiet_since >= before);
  CHECK(state.unacknowledged_since == PeerState::Clock::time_point{});
}

TEST_CASE("the memory of operations is freed when their peer is not used, but not while the provider has some") {
  Known peers(1);
  PeerState& state = peers.of(0);
  peers.activate(state);
  FabricOperation& kept = state.pool.take();
  const auto count = [&] {
    int operations = 0;
    state.pool.for_each([&](FabricOperation&) { ++operations; });
    return operations;
  };
  peers.deactivate_unused();
  CHECK(count() == 1);
  state.pool.release(kept);
  peers.activate(state);
  peers.deactivate_unused();
  CHECK(count() == 0);
  // A number that a reply might repeat is not given again.
  CHECK(state.pool.take().generation == 2);
}

}  // namespace farside::peer_states_test
