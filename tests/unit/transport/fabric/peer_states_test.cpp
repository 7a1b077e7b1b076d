// SPDX-License-Identifier: BSD-3-Clause
// The regular work of Fabric, and its work at the end of a connection, visits only peers with outstanding operations,
// not all known peers.
#include <array>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/peers.hpp"

namespace farside::peer_states_test {

namespace farside {
namespace {

std::set<Peer> active(const PeerStates& states) {
  std::set<Peer> found;
  for (const PeerState* const state : states.active()) found.insert(state->peer);
  CHECK(found.size() == states.active().size());
  return found;
}

// As Fabric begins an operation, and as it ends.
void begin(PeerStates& states, Peer peer) {
  states.activate(states.of(peer));
  PeerStates::begin(states.of(peer));
}
void end(PeerStates& states, Peer peer) {
  ++states.of(peer).completed;
  PeerStates::end(states.of(peer));
}

}  // namespace

TEST_CASE("of ten thousand peers only those are visited that are used") {
  PeerStates states;
  for (Peer peer = 0; peer < 10'000; ++peer) states.of(peer);
  CHECK(active(states).empty());
  for (const Peer peer : {9'999, 5, 7, 5}) begin(states, peer);
  CHECK(active(states) == std::set<Peer>{5, 7, 9'999});
  end(states, 5);
  end(states, 9'999);
  // Operations to these peers have completed since the last check; after the next check this is no longer so.
  states.deactivate_unused();
  CHECK(active(states) == std::set<Peer>{5, 7, 9'999});
  states.deactivate_unused();
  CHECK(active(states) == std::set<Peer>{5, 7});
  end(states, 5);
  states.deactivate_unused();
  states.deactivate_unused();
  CHECK(active(states) == std::set<Peer>{7});
  CHECK(states.any_in_flight(7));
  CHECK_FALSE(states.any_in_flight(5));
  CHECK_FALSE(states.of(5).ready());
  end(states, 7);
  begin(states, 5);
  states.deactivate_unused();
  states.deactivate_unused();
  CHECK(active(states) == std::set<Peer>{5});
}

TEST_CASE("a peer that was never used has no state") {
  PeerStates states;
  begin(states, 4);
  CHECK(states.find(3) == nullptr);
  CHECK(states.find(5) == nullptr);
  CHECK_FALSE(states.any_in_flight(3));
  CHECK_FALSE(states.any_in_flight(100'000));
  CHECK_FALSE(states.any_issued(0xffff'ffff));
  states.withdraw_endpoint(3);
  CHECK(states.find(4) == &states.of(4));
}

TEST_CASE("states do not move, whatever the numbers of their peers are") {
  PeerStates states;
  std::vector<Peer> peers{1'000'000, 65'536, 65'535};
  for (Peer peer = 0; peer < 5'000; ++peer) peers.push_back(peer);
  std::vector<PeerState*> made;
  for (const Peer peer : peers) made.push_back(&states.of(peer));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    REQUIRE(states.find(peers[i]) == made[i]);
    REQUIRE(made[i]->peer == peers[i]);
  }
}

TEST_CASE("threads that use the same new peers at once get the same states") {
  constexpr Peer kPeers = 2'000;
  PeerStates states;
  std::array<std::vector<PeerState*>, 4> seen;
  std::vector<std::thread> threads;
  for (std::vector<PeerState*>& mine : seen) {
    threads.emplace_back([&] {
      for (Peer peer = 0; peer < kPeers; ++peer) mine.push_back(&states.of(peer));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<PeerState*>& mine : seen) CHECK(mine == seen[0]);
  CHECK(std::set<PeerState*>(seen[0].begin(), seen[0].end()).size() == kPeers);
}

TEST_CASE("a peer that becomes active is quiet from then on, and nothing of before counts") {
  PeerStates states;
  PeerState& state = states.of(1);
  state.unacknowledged_since = PeerState::Clock::now();
  const auto before = PeerState::Clock::now();
  states.activate(state);
  CHECK(state.quiet_since >= before);
  CHECK(state.unacknowledged_since == PeerState::Clock::time_point{});
}

TEST_CASE("the memory of operations is freed when their peer is not used, but not while the provider has some") {
  PeerStates states;
  PeerState& state = states.of(1);
  states.activate(state);
  Operation& kept = state.pool.take();
  const auto count = [&] {
    int operations = 0;
    state.pool.for_each([&](Operation&) { ++operations; });
    return operations;
  };
  states.deactivate_unused();
  CHECK(count() == 1);
  state.pool.release(kept);
  states.activate(state);
  states.deactivate_unused();
  CHECK(count() == 0);
  // A number that a reply might repeat is not given again.
  CHECK(state.pool.take().generation == 2);
}

}  // namespace farside

}  // namespace farside::peer_states_test
