// SPDX-License-Identifier: BSD-3-Clause
// The table of peers: what is known of the notifications to and from each, and which are visited. The regular work of
// Fabric, and its work at the end of a connection, visits only peers with outstanding operations, not all known peers.
#include "transport/fabric/peers.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::peers_test {

using namespace std::chrono_literals;

namespace {

struct UnderWay : Peers {
  Pending pending;
  PeerState &state = know(3), &other = know(4);

  FabricOperation& write() {
    FabricOperation& operation = state.begin();
    state.issued(operation, pending, Pending::kMessages);
    return operation;
  }
  FabricOperation& notification() {
    FabricOperation& operation = state.begin();
    operation.notification = true;
    state.issued(operation, pending, Pending::kMessages);
    return operation;
  }
  FabricOperation& request() {
    FabricOperation& operation = state.begin();
    operation.await_reply();
    state.issued(operation, pending, Pending::kMessages);
    return operation;
  }
  std::vector<std::byte> reply_to(const FabricOperation& operation) const {
    ReplyHeader header{};
    header.kind = MessageKind::kReply;
    header.status = ReplyStatus::kDone;
    header.operation = number(operation);
    header.generation = operation.generation;
    const auto bytes = std::as_bytes(std::span(&header, 1));
    return {bytes.begin(), bytes.end()};
  }
  bool idle() { return pending.done() && state.in_flight == 0 && state.requests == 0 && !state.any_issued(); }
};

const Error kLost{ErrorKind::kPeer, "lost"};

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

TEST_CASE(
    "a notification ends when it is sent, and is lost with its connection unless a later operation has completed") {
  const auto end_connection = [](UnderWay& in_flight) { in_flight.fail_awaiting(in_flight.state, kLost, false); };
  {
    UnderWay in_flight;
    PeerLosses &lost = in_flight.state.losses, &other = in_flight.other.losses;
    end_connection(in_flight);
    in_flight.completed(in_flight.notification());
    CHECK((in_flight.idle() && lost.lost_notifications == 0));
    end_connection(in_flight);
    CHECK((lost.lost_notifications == 1 && other.lost_notifications == 0));
    CHECK((lost.to_report.exchange(false) && !lost.to_report && !other.to_report));
    end_connection(in_flight);
    CHECK(lost.lost_notifications == 1);
  }
  for (const bool by_reply : {false, true}) {
    UnderWay in_flight;
    FabricOperation& before = in_flight.write();
    in_flight.completed(in_flight.notification());
    in_flight.completed(before);
    FabricOperation& behind = by_reply ? in_flight.request() : in_flight.write();
    FabricOperation& last = in_flight.notification();
    in_flight.completed(behind);
    if (by_reply) CHECK(in_flight.take_reply(in_flight.reply_to(behind)));
    // The first notification has arrived. The last one may not have arrived.
    CHECK(in_flight.state.confirmed == 1);
    in_flight.completed(last);
    end_connection(in_flight);
    CHECK(in_flight.state.losses.lost_notifications == 1);
  }
  UnderWay in_flight;
  in_flight.completed(in_flight.notification());
  FabricOperation& request = in_flight.request();
  in_flight.completed(request);
  CHECK(in_flight.take_reply(in_flight.reply_to(request)));
  end_connection(in_flight);
  CHECK(in_flight.state.losses.lost_notifications == 0);
  // If the peer is abandoned, its notification counts as lost, too. A failed operation confirms nothing.
  in_flight.completed(in_flight.notification());
  in_flight.failed(in_flight.write(), kLost);
  in_flight.fail_all(in_flight.state, kLost);
  CHECK(in_flight.state.losses.lost_notifications == 1);
  CHECK_FALSE(in_flight.pending.take_error().ok());
}

TEST_CASE("the numbers of a peer's notifications show which are lost, and only that interrupts") {
  UnderWay in_flight;
  PeerState& state = in_flight.state;
  for (const std::uint32_t number : {1U, 2U, 3U}) in_flight.numbered(state, number);
  CHECK(in_flight.interruptions() == 0);
  in_flight.numbered(state, 5);
  CHECK(in_flight.interruptions() == 1);
  CHECK(state.losses.last_interruption == 1);
  // A probe may be overtaken by a notification behind it.
  in_flight.numbered(state, 4);
  in_flight.numbered(state, 6);
  CHECK(in_flight.interruptions() == 1);
  in_flight.numbered(in_flight.other, 2);
  CHECK(in_flight.interruptions() == 2);
  CHECK(in_flight.other.losses.last_interruption == 2);
  // Numbers wrap.
  state.arrived = ~std::uint32_t{0};
  in_flight.numbered(state, 0);
  CHECK(in_flight.interruptions() == 2);
  in_flight.numbered(state, 2);
  CHECK(in_flight.interruptions() == 3);
}

TEST_CASE("the operations of an abandoned peer fail at once, and keep their contexts until they complete") {
  UnderWay in_flight;
  FabricOperation &write = in_flight.write(), &sent = in_flight.request();
  in_flight.completed(sent);
  const std::vector<std::byte> late = in_flight.reply_to(sent);
  in_flight.fail_all(in_flight.state, kLost);
  CHECK((in_flight.idle() && !in_flight.pending.take_error().ok()));
  CHECK_FALSE(in_flight.take_reply(late));
  // Only the context of the request that was sent is free.
  FabricOperation &again = in_flight.write(), &another = in_flight.write();
  CHECK((&again == &sent && &another != &write));
  in_flight.failed(write, kLost);  // the provider's error, which changes nothing
  CHECK(in_flight.pending.count(Pending::kMessages) == 2);
  in_flight.completed(again);
  in_flight.completed(another);
  CHECK((in_flight.idle() && in_flight.pending.take_error().ok()));
}

TEST_CASE("after an interruption a process owes the number of notifications that nothing has confirmed") {
  UnderWay in_flight;
  PeerState& state = in_flight.state;
  in_flight.fail_awaiting(state, kLost, false);
  CHECK_FALSE(state.owes_number);
  in_flight.completed(in_flight.notification());
  in_flight.completed(in_flight.write());
  in_flight.fail_awaiting(state, kLost, false);
  CHECK_FALSE(state.owes_number);
  in_flight.completed(in_flight.notification());
  in_flight.fail_awaiting(state, kLost, true);
  CHECK_FALSE(state.owes_number);
  in_flight.fail_awaiting(state, kLost, false);
  CHECK(state.owes_number);
  CHECK(state.awaits_host());
}

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

TEST_CASE("attempts to connect are delayed ever longer, up to a limit") {
  Known peers(1);
  PeerState& peer = peers.of(0);
  const auto now = Clock::now();
  for (const auto wait : {1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 100ms, 100ms, 100ms}) {
    peer.back_off(now);
    CHECK(peer.not_before == now + wait);
  }
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

TEST_CASE("operations of each class are counted apart, many of them") {
  Pending all;
  constexpr int kMany = 65'535;
  for (int i = 0; i < kMany; ++i) all.issued(Pending::kReads);
  all.issued(Pending::kAtomics);
  CHECK(all.count(Pending::kReads) == kMany);
  CHECK(all.count(Pending::kAtomics) == 1);
  CHECK(all.count(Pending::kWrites) == 0);
  all.completed(Pending::kAtomics);
  for (int i = 0; i < kMany; ++i) all.completed(Pending::kReads);
  CHECK(all.done());
}

}  // namespace farside::peers_test
