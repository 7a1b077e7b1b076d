// SPDX-License-Identifier: BSD-3-Clause
// Making many connections: the number of outstanding requests, the order of the peers, and a lack of descriptors.
#include "transport/fabric/connecting.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"
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
      space.good(space->route(r).put(r, 8, &word, 8), "put");
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

TEST_CASE("both sides of a connection expect it before the other can use it") {
  struct Counted : Opened {
    std::size_t expected = 0, late = 0;
    Counted() {
      connections->before_more = [this](std::size_t number) {
        late += connections->count() >= number ? 1 : 0;
        expected = number;
      };
    }
  };
  Counted accepts;
  std::deque<Counted> callers(3);
  for (std::size_t i = 0; i < callers.size(); ++i) {
    Counted& caller = callers[i];
    PeerState& there = caller.peers.insert(accepts->address());
    CHECK(soon(caller, [&] {
      accepts->progress();
      return caller.reach(there) == 0;
    }));
    CHECK(caller.expected == 1);
    CHECK(caller.late == 0);
    CHECK(accepts.expected == i + 1);
  }
  CHECK(accepts.late == 0);
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

TEST_CASE("errors of connecting that may pass are known") {
  for (const int error : {ETIMEDOUT, ENOMEM, ECONNREFUSED, EADDRNOTAVAIL, ECONNRESET, ECONNABORTED, EHOSTUNREACH,
                          ENETUNREACH, EMFILE, ENFILE, ENOBUFS, EAGAIN}) {
    INFO(fi_strerror(error));
    CHECK(is_transient_connect_error(error));
  }
  for (const int error : {EINVAL, EACCES, EPERM, ENODEV, EAFNOSUPPORT, EOPNOTSUPP}) {
    INFO(fi_strerror(error));
    CHECK_FALSE(is_transient_connect_error(error));
  }
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

TEST_CASE("connections leave descriptors to the application") {
  CHECK(connections_within(1024, 10) == 758);
  CHECK(connections_within(20'000, 100) == 20'000 - 356);
  CHECK(connections_within(64, 10) == 38);
  CHECK(connections_within(64, 60) == 0);
  CHECK(connections_within(0, 0) == 0);
  expect_well(run_processes(1, [](Ranks& ranks) {
    rlimit limit{100, 200};
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto soft = [&] {
      getrlimit(RLIMIT_NOFILE, &limit);
      return limit.rlim_cur;
    };
    ConnectionRoom descriptors({});
    const std::size_t open = 150 - descriptors.most_connections(1);
    ranks.check(open > 2 && open < 40, fmt::format("{} are open", open));
    descriptors.allow(75 - open);
    ranks.check(soft() == 100, "as many as there may be without a change");
    descriptors.allow(76 - open);
    ranks.check(soft() == 200, fmt::format("one more takes a higher limit: {}", soft()));
    descriptors.allow(1000);
    ranks.check(soft() == 200, "the hard limit stays");
  }));
}

TEST_CASE("the processes of a node share what there is for connections, and leave a quarter to others") {
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
    auto& fabric = static_cast<Fabric&>(*use_best_endpoint().value());
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

TEST_CASE("a process without descriptors closes connections that it does not use, and reaches all peers") {
  if (kSanitized) return;
  expect_well(run_with_space(6, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    if (ranks.rank() == 0) {
      leave_descriptors(2, true);
      put_to_all(ranks, space);
    }
    ranks.barrier();
    if (ranks.rank() != 0) ranks.check(read_data<std::uint64_t>(space, 8) == 7, "what was put is here");
    ranks.barrier();
  }));
}

TEST_CASE("a process without descriptors closes connections that it does not use, and accepts a peer's") {
  if (kSanitized) return;
  expect_well(run_with_space(4, Variant::kFabric, 64, [](Ranks& ranks, SpaceFixture& space) {
    const std::uint64_t word = 7;
    const auto put_to = [&](int rank) {
      space.good(space->route(rank).put(rank, 8, &word, 8), "put");
      space.good(space->route(rank).flush(rank), "flush");
    };
    if (ranks.rank() == 0) {
      put_to(1);
      put_to(2);
      leave_descriptors(0, true);
    }
    ranks.barrier();
    const auto begin = Clock::now();
    if (ranks.rank() == 3) put_to(0);
    ranks.check(Clock::now() - begin < 10s, "long before the peer would be abandoned");
    ranks.barrier();
    if (ranks.rank() == 0) ranks.check(read_data<std::uint64_t>(space, 8) == 7, "what was put is here");
    ranks.barrier();
  }));
}

TEST_CASE("the peer of a connection is found by the connection's number, while the connection is the present one") {
  Opened one, other;
  PeerState &there = one.peers.insert(other->address()), &here = other.peers.insert(one->address());
  CHECK_FALSE(one->peer_of(0));
  const auto connect = [&] {
    return soon(one, [&] {
      other->progress();
      return one.reach(there) == 0 && other.reach(here) == 0;
    });
  };
  REQUIRE(connect());
  const std::uint64_t number = there.connection_number();
  CHECK(number != 0);
  CHECK(number == here.connection_number());
  CHECK(one->peer_of(number) == &there);
  CHECK(other->peer_of(number) == &here);
  CHECK_FALSE(one->peer_of(number + 1));
  one->stop(there);
  CHECK_FALSE(one->peer_of(number));
  REQUIRE(connect());
  CHECK(there.connection_number() != number);
  CHECK(one->peer_of(there.connection_number()) == &there);
  CHECK_FALSE(other->peer_of(number));
}

TEST_CASE("an ended connection is closed when nothing is in flight towards its peer") {
  Opened one, other;
  PeerState& there = one.peers.insert(other->address());
  CHECK(soon(one, [&] {
    other->progress();
    return one.reach(there) == 0;
  }));
  CHECK(one->count() == 1);
  FabricOperation& operation = there.begin();
  there.endpoint = there.current->endpoint.get();
  one->stop(there);
  CHECK(there.endpoint == nullptr);
  CHECK(one->count() == 0);
  one->close_ended();
  const std::size_t before = open_sockets();
  one.peers.not_issued(operation);
  one->close_ended();
  CHECK(open_sockets() == before - 1);
}

TEST_CASE("a connection that is to be closed while it is being made carries only answers when it is there") {
  Opened one, other;
  PeerState& there = one.peers.insert(other->address());
  CHECK(one.reach(there) == -FI_EAGAIN);
  PeerState& here = other.peers.know(one->address().identity);
  CHECK(soon(one, [&] {
    other->progress();
    return here.current != nullptr;
  }));
  REQUIRE_FALSE(there.connected());
  one->begin_disconnect(*there.current);
  CHECK(one->count() == 0);
  CHECK_FALSE(one->disconnect(there));
  CHECK(soon(one, [&] {
    other->progress();
    return there.connected();
  }));
  fid_ep* endpoint = nullptr;
  CHECK(one->reach(there, endpoint) == -FI_EAGAIN);
  CHECK(one->reach(there, endpoint, Connections::What::kAnswer) == 0);
  CHECK(one->disconnect(there));
  CHECK(there.current == nullptr);
}

TEST_CASE("a connection of a process to itself does not count towards limits") {
  Opened one;
  PeerState& self = one.peers.insert(one->address());
  CHECK(soon(one, [&] { return one.reach(self) == 0; }));
  CHECK(one->count() == 0);
}

}  // namespace farside::connecting_test
