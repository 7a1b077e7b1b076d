// SPDX-License-Identifier: BSD-3-Clause
// What Fabric does at regular times, and when a connection ends, goes over what is under way, not over what is known.
#include "transport/fabric/peer_states.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

namespace farside {
namespace {

std::set<Peer> active(PeerStates& states) {
  std::set<Peer> found;
  states.for_each_busy([&](PeerState& state) { found.insert(state.peer); });
  CHECK(found.size() == states.active().size());
  return found;
}

}  // namespace

TEST_CASE("of ten thousand peers only those with operations under way are visited") {
  PeerStates states;
  for (Peer peer = 0; peer < 10'000; ++peer) states.of(peer);
  CHECK(active(states).empty());
  for (const Peer peer : {9'999, 5, 7, 5}) states.begin(states.of(peer));
  CHECK(active(states) == std::set<Peer>{5, 7, 9'999});
  CHECK(states.activations() == 3);
  states.end(states.of(5));
  CHECK(active(states) == std::set<Peer>{5, 7, 9'999});
  states.end(states.of(9'999));
  states.end(states.of(5));
  CHECK(active(states) == std::set<Peer>{7});
  CHECK(states.is_active(7));
  CHECK_FALSE(states.is_active(5));
  states.end(states.of(7));
  CHECK(active(states).empty());
}

TEST_CASE("a peer that was never used has no state") {
  PeerStates states;
  states.begin(states.of(4));
  CHECK(states.find(3) == nullptr);
  CHECK(states.find(5) == nullptr);
  CHECK_FALSE(states.is_active(3));
  CHECK_FALSE(states.is_active(100'000));
  CHECK(states.find(4) == &states.of(4));
}

TEST_CASE("all operations of the active peers may end while they are visited") {
  PeerStates states;
  for (Peer peer = 0; peer < 10; ++peer) {
    for (Peer i = 0; i <= peer % 3; ++i) states.begin(states.of(peer));
  }
  std::vector<Peer> visited;
  states.for_each_busy([&](PeerState& state) {
    visited.push_back(state.peer);
    if (state.peer % 2 == 0) {
      while (state.under_way > 0) states.end(state);
    }
  });
  std::ranges::sort(visited);
  CHECK(visited == std::vector<Peer>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(active(states) == std::set<Peer>{1, 3, 5, 7, 9});
}

TEST_CASE("a peer that becomes active is quiet from then on, and nothing of before counts") {
  PeerStates states;
  PeerState& state = states.of(1);
  state.unacknowledged_since = PeerState::Clock::now();
  const auto before = PeerState::Clock::now();
  states.begin(state);
  CHECK(state.quiet_since >= before);
  CHECK(state.unacknowledged_since == PeerState::Clock::time_point{});
}

TEST_CASE("the operations of one peer are visited without those of others, and may leave meanwhile") {
  std::deque<Operation> operations(6);
  IssuedOperations one, other;
  for (std::size_t i = 0; i < operations.size(); ++i) (i % 2 == 0 ? one : other).add(operations[i]);
  const auto numbers = [&](IssuedOperations& of) {
    std::set<std::ptrdiff_t> found;
    of.for_each([&](Operation& each) {
      found.insert(std::ranges::find_if(operations, [&](Operation& any) { return &any == &each; }) -
                   operations.begin());
    });
    return found;
  };
  CHECK(numbers(one) == std::set<std::ptrdiff_t>{0, 2, 4});
  one.remove(operations[2]);
  CHECK(numbers(one) == std::set<std::ptrdiff_t>{0, 4});
  one.remove(operations[4]);
  one.add(operations[2]);
  one.for_each([&](Operation& each) { one.remove(each); });
  CHECK(one.empty());
  CHECK(numbers(other) == std::set<std::ptrdiff_t>{1, 3, 5});
}

}  // namespace farside
