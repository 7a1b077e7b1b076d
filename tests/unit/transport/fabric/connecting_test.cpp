// SPDX-License-Identifier: BSD-3-Clause
// Making many connections: the number of outstanding requests, the order of the peers, and a lack of descriptors.
#include "transport/fabric/connecting.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/opened_connections.hpp"
#include "tests/unit/transport/fabric/silent_listener.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside::connecting_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

// Sets the limits so that this process can open `more` further descriptors.
void leave_descriptors(std::size_t more, bool hard_too) {
  std::vector<UniqueFd> free;
  for (std::size_t i = 0; i < more; ++i) free.emplace_back(dup(STDIN_FILENO));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(more > 0 ? free.back().get() + 1 : UniqueFd(dup(STDIN_FILENO)).get());
  if (hard_too) limit.rlim_max = limit.rlim_cur;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// One process puts to many others in turn.
void put_to_all(Ranks& ranks, SpaceFixture& space) {
  const std::uint64_t word = 7;
  for (int round = 0; round < 2; ++round) {
    for (int r = 1; r < ranks.size(); ++r) {
      space.good(space->route(r).carry_out(r, DataOperation::put(8, &word, 8)), "put");
      space.good(space->route(r).flush(r), "flush");
    }
  }
}

}  // namespace

TEST_CASE("a limited number of requests to connect is under way, and the other peers follow in their order") {
  constexpr std::size_t kPeers = 3 * Connections::kMostInitiated + 4;
  Opened opened;
  std::deque<SilentListener> peers(kPeers);
  std::vector<PeerState*> known;
  for (const SilentListener& peer : peers) known.push_back(&opened.peers.insert(peer.address()));
  for (PeerState* const peer : known) CHECK(opened.reach(*peer) == -FI_EAGAIN);
  CHECK(opened->count() == Connections::kMostInitiated);
  const auto called = [&] { return std::ranges::count_if(peers, [](const SilentListener& p) { return p.called(); }); };
  CHECK(called() == Connections::kMostInitiated);
  CHECK(std::all_of(peers.begin(), peers.begin() + Connections::kMostInitiated,
                    [](const SilentListener& p) { return p.called(); }));
  // Asking again changes nothing.
  for (PeerState* const peer : known) CHECK(opened.reach(*peer) == -FI_EAGAIN);
  CHECK(opened->count() == Connections::kMostInitiated);
  CHECK(known.back()->waits);
  CHECK_FALSE(known.front()->waits);
  // The next waiting peer gets a place that becomes free, without a call for that peer. A peer that asks again does not
  // get it.
  peers[5].hang_up();
  CHECK(soon(opened, [&] {
    opened.reach(*known[5]);
    return peers[Connections::kMostInitiated].called();
  }));
  CHECK_FALSE(peers[Connections::kMostInitiated + 1].called());
  CHECK(known[5]->connect_error() != "");
  // The same if a peer with a place is abandoned.
  opened->stop(*known[6]);
  CHECK(soon(opened, [&] { return peers[Connections::kMostInitiated + 1].called(); }));
  // A waiting peer that is abandoned gets no place.
  opened->stop(*known[Connections::kMostInitiated + 2]);
  opened->stop(*known[7]);
  CHECK(soon(opened, [&] { return peers[Connections::kMostInitiated + 3].called(); }));
  CHECK_FALSE(peers[Connections::kMostInitiated + 2].called());
  // Every peer gets a place, even if all requests are refused.
  std::vector<bool> had(kPeers);
  std::size_t most = 0;
  CHECK(soon(opened, [&] {
    for (std::size_t i = 0; i < kPeers; ++i) {
      if (!peers[i].called()) continue;
      had[i] = true;
      peers[i].hang_up();
    }
    for (PeerState* const peer : known) opened.reach(*peer);
    most = std::max(most, opened->count());
    return std::ranges::count(had, true) == static_cast<std::ptrdiff_t>(kPeers);
  }));
  CHECK(most <= Connections::kMostInitiated);
}

TEST_CASE("without a descriptor an attempt to connect is repeated, and the shortage is known") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    Opened opened;
    const SilentListener listener;
    PeerState& peer = opened.peers.insert(listener.address());
    leave_descriptors(0, true);
    for (int i = 0; i < 20; ++i) {
      ranks.check(opened.reach(peer) == -FI_EAGAIN, "the attempt is repeated");
      std::this_thread::sleep_for(1ms);
    }
    ranks.check(opened->room().shortage, "there is a shortage");
    ranks.check(peer.connect_error() == "Too many open files", peer.connect_error());
    opened->room().shortage = false;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur += 8;
    limit.rlim_max += 8;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;  // only root may
    ranks.check(soon(opened,
                     [&] {
                       opened.reach(peer);
                       return listener.called();
                     }),
                "with a descriptor it succeeds");
    ranks.check(!opened->room().shortage, "the shortage is over");
  }));
}

TEST_CASE("over tcp no call waits for a host that answers no request to connect") {
  const SilentListener full(0);
  std::deque<Opened> callers(3);
  Opened& last = callers.back();
  const auto begin = Clock::now();
  for (Opened& each : callers) {
    CHECK(each.reach(each.peers.insert(full.address())) == -FI_EAGAIN);
    for (int i = 0; i < 10; ++i) each->progress();
  }
  CHECK(Clock::now() - begin < 900ms);  // the first answer that is missing is waited for a second
  CHECK(last->connecting());
  Opened other;
  PeerState& there = last.peers.insert(other->address());
  CHECK(soon(last, [&] {
    other->progress();
    return last.reach(there) == 0;
  }));
}

TEST_CASE("an error of connecting that does not pass is returned once, to those who asked for the peer") {
  Opened opened;
  FabricAddress nowhere = any_address(1);
  nowhere.socket.family = opened->address().socket.family == AF_INET ? AF_INET6 : AF_INET;
  PeerState& peer = opened.peers.insert(nowhere);
  const ssize_t code = opened.reach(peer);
  INFO(fi_strerror(static_cast<int>(-code)));
  CHECK(code != -FI_EAGAIN);
  CHECK(opened.reach(peer) == -FI_EAGAIN);
  CHECK(soon(opened, [&] { return opened.reach(peer) == code; }));
  CHECK_FALSE(opened->connecting());
}

TEST_CASE("connections leave descriptors to the application, and a quarter of those of the node to others") {
  CHECK(connections_within(1024, 10) == 758);
  CHECK(connections_within(20'000, 100) == 20'000 - 356);
  CHECK(connections_within(64, 10) == 38);
  CHECK(connections_within(64, 60) == 0);
  CHECK(connections_within(0, 0) == 0);
  CHECK(share_of_node(1000, 1) == 750);
  CHECK(share_of_node(1000, 50) == 15);
  CHECK(share_of_node(1003, 2) == 376);
  CHECK(share_of_node(UINT64_MAX, 1) == UINT64_MAX - UINT64_MAX / 4);
  CHECK(share_of_node(10, 0) == 8);
  CHECK(ConnectionRoom(262'144).most_connections(96) == 2048);
  CHECK(ConnectionRoom(100).most_connections(96) == 1);
  CHECK(ConnectionRoom(0).most_connections(96) == 0);
}

TEST_CASE("a space tells the endpoint how many processes of its group are on the node") {
  expect_well(run_with_space(3, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture&) {
    auto& fabric = static_cast<Fabric&>(*Process::instance().endpoints_in_use().front().endpoint);
    ranks.check(fabric.share_node(0) == 3, fmt::format("{} processes", fabric.share_node(0)));
    ranks.barrier();
  }));
}

TEST_CASE("a process raises its soft limit of descriptors for connections") {
  expect_well(run_with_space(6, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    if (ranks.rank() == 0 && std::string_view(test_provider()) == "tcp") {
      const std::size_t before = open_sockets();
      leave_descriptors(2, false);
      put_to_all(ranks, space);
      ranks.check(open_sockets() == before + 5, fmt::format("{} sockets after {}", open_sockets(), before));
    }
    ranks.barrier();
  }));
}

TEST_CASE("a process without descriptors closes connections that it does not use, reaches all peers and accepts one") {
  if (kSanitized) return;
  expect_well(run_with_space(6, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    if (ranks.rank() == 0) {
      leave_descriptors(2, true);
      put_to_all(ranks, space);
    }
    ranks.barrier();
    if (ranks.rank() != 0) ranks.check(read_data<std::uint64_t>(space, 8) == 7, "what was put is here");
    const auto begin = Clock::now();
    const std::uint64_t word = 8;
    if (ranks.rank() == 1) {  // its connection was closed
      space.good(space->route(0).carry_out(0, DataOperation::put(8, &word, 8)), "put");
      space.good(space->route(0).flush(0), "flush");
    }
    ranks.check(Clock::now() - begin < 10s, "long before the peer would be abandoned");
    ranks.barrier();
    if (ranks.rank() == 0) ranks.check(read_data<std::uint64_t>(space, 8) == 8, "what was put is here");
    ranks.barrier();
  }));
}

TEST_CASE("a connection over tcp that is stopped ends, with its number, and the peer takes the next one in its place") {
  Opened one, other;
  PeerState &there = one.peers.insert(other->address()), &here = other.peers.insert(one->address());
  std::uint64_t last = 0;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(soon(one, [&] {
      other->progress();
      return one.reach(there) == 0 && other.reach(here) == 0;
    }));
    const std::uint64_t number = there.connection_number();
    CHECK((number != 0 && number != last && number == here.connection_number()));
    CHECK((one->peer_of(number) == &there && other->peer_of(number) == &here && other->peer_of(last) == nullptr));
    const auto state = one->tcp_state(there);
    CHECK((state && state->silent < 10s));
    one->stop(there);
    CHECK_FALSE(one->peer_of(std::exchange(last, number)));
  }
}

TEST_CASE("a connection of a process to itself does not count towards limits") {
  Opened one;
  PeerState& self = one.peers.insert(one->address());
  CHECK(soon(one, [&] { return one.reach(self) == 0; }));
  CHECK(one->count() == 0);
}

}  // namespace farside::connecting_test
