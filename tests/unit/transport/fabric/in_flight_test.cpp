// SPDX-License-Identifier: BSD-3-Clause
// Each operation ends exactly once, whichever event comes first: its completion, its reply, an error, the end of its
// connection, or the abandonment of its peer. These tests need no provider.
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/peers.hpp"

namespace farside::in_flight_test {

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
  FabricOperation& request(std::uint64_t* fetched = nullptr) {
    FabricOperation& operation = state.begin();
    operation.await_reply();
    operation.message.fetched = std::as_writable_bytes(std::span(fetched, fetched != nullptr ? 1 : 0));
    state.issued(operation, pending, Pending::kMessages);
    return operation;
  }
  // The handler's reply, with one word of data if there is one.
  std::vector<std::byte> reply_to(const FabricOperation& operation, const std::uint64_t* word = nullptr) const {
    ReplyHeader header{};
    header.kind = MessageKind::kReply;
    header.status = ReplyStatus::kDone;
    header.operation = number(operation);
    header.generation = operation.generation;
    std::vector<std::byte> message(sizeof header + (word != nullptr ? sizeof *word : 0));
    std::memcpy(message.data(), &header, sizeof header);
    if (word != nullptr) std::memcpy(message.data() + sizeof header, word, sizeof *word);
    return message;
  }
  bool idle() { return pending.done() && state.in_flight == 0 && state.requests == 0 && !state.any_issued(); }
};

const Error kLost{ErrorKind::kPeer, "lost"};

}  // namespace

TEST_CASE(
    "a notification ends when it is sent, and is lost with its connection unless a later operation has completed") {
  const auto end_connection = [](UnderWay& in_flight) { in_flight.fail_awaiting(in_flight.state, kLost, false); };
  {
    UnderWay in_flight;
    end_connection(in_flight);
    CHECK(in_flight.state.losses.lost_notifications == 0);
    in_flight.completed(in_flight.notification());
    CHECK(in_flight.idle());
    CHECK(in_flight.state.losses.lost_notifications == 0);
    end_connection(in_flight);
    CHECK(in_flight.state.losses.lost_notifications == 1);
    CHECK(in_flight.other.losses.lost_notifications == 0);
    CHECK(in_flight.state.losses.to_report);
    CHECK_FALSE(in_flight.other.losses.to_report);
    CHECK(in_flight.state.losses.to_report.exchange(false));
    CHECK_FALSE(in_flight.state.losses.to_report);
    CHECK_FALSE(in_flight.state.losses.to_report.exchange(false));
    end_connection(in_flight);
    CHECK(in_flight.state.losses.lost_notifications == 1);
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

TEST_CASE("interruptions are numbered over all peers, and an end in order is none") {
  UnderWay in_flight;
  CHECK(in_flight.interruptions() == 0);
  in_flight.completed(in_flight.notification());
  in_flight.fail_awaiting(in_flight.state, kLost, true);
  CHECK(in_flight.interruptions() == 0);
  CHECK(in_flight.state.losses.lost_notifications == 0);
  // The end of a connection on which this process has issued nothing also counts, since the peer's notifications may be
  // lost.
  in_flight.fail_awaiting(in_flight.other, kLost, false);
  CHECK(in_flight.interruptions() == 1);
  CHECK(in_flight.other.losses.last_interruption == 1);
  CHECK(in_flight.other.losses.lost_notifications == 0);
  CHECK(in_flight.state.losses.last_interruption == 0);
  in_flight.fail_all(in_flight.state, kLost);
  CHECK(in_flight.interruptions() == 2);
  CHECK(in_flight.state.losses.last_interruption == 2);
  CHECK(in_flight.other.losses.last_interruption == 1);
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

TEST_CASE("a request ends with the later one of its completion and its reply") {
  for (const bool reply_first : {false, true}) {
    UnderWay in_flight;
    std::uint64_t fetched = 0;
    const std::uint64_t word = 42;
    FabricOperation& request = in_flight.request(&fetched);
    CHECK(in_flight.state.requests == 1);
    const std::vector<std::byte> reply = in_flight.reply_to(request, &word);
    if (reply_first) {
      CHECK(in_flight.take_reply(reply));
    } else {
      in_flight.completed(request);
    }
    CHECK_FALSE(in_flight.pending.done());
    if (reply_first) {
      in_flight.completed(request);
    } else {
      CHECK(in_flight.take_reply(reply));
    }
    CHECK(in_flight.idle());
    CHECK(in_flight.pending.take_error().ok());
    CHECK(fetched == 42);
    CHECK(in_flight.state.completed == 1);
    // A second copy of the reply belongs to no request, not even to the next one, which has the same context.
    CHECK_FALSE(in_flight.take_reply(reply));
    in_flight.request();
    CHECK_FALSE(in_flight.take_reply(reply));
  }
}

TEST_CASE("a request whose send is not awaited ends with its reply, or when its peer is lost or abandoned") {
  UnderWay in_flight;
  PeerState& state = in_flight.state;
  const auto request = [&](std::uint64_t* fetched) -> FabricOperation& {
    FabricOperation& operation = state.begin();
    operation.await_reply();
    operation.completions_left = 1;
    operation.message.fetched = std::as_writable_bytes(std::span(fetched, 1));
    state.issued(operation, in_flight.pending, Pending::kMessages);
    return operation;
  };
  std::uint64_t fetched = 0;
  const std::uint64_t word = 5;
  FabricOperation& first = request(&fetched);
  const std::vector<std::byte> reply = in_flight.reply_to(first, &word);
  CHECK(in_flight.take_reply(reply));
  CHECK(fetched == word);
  CHECK(in_flight.idle());
  CHECK_FALSE(in_flight.take_reply(reply));
  CHECK(in_flight.pending.take_error());
  request(&fetched);
  in_flight.fail_awaiting(in_flight.state, kLost, false);
  CHECK(in_flight.idle());
  CHECK_FALSE(in_flight.pending.take_error());
  request(&fetched);
  in_flight.fail_all(state, kLost);
  CHECK(in_flight.idle());
  CHECK_FALSE(in_flight.pending.take_error());
  // The next request awaits its send again.
  FabricOperation& last = in_flight.request();
  CHECK(in_flight.take_reply(in_flight.reply_to(last)));
  CHECK_FALSE(in_flight.pending.done());
  in_flight.completed(last);
  CHECK(in_flight.idle());
}

TEST_CASE("an operation that the provider does not take leaves nothing behind") {
  UnderWay in_flight;
  FabricOperation& refused = in_flight.state.begin();
  refused.await_reply();
  CHECK(in_flight.state.any_in_flight());
  in_flight.not_issued(refused);
  CHECK(in_flight.idle());
  CHECK_FALSE(in_flight.state.any_in_flight());
  // The context is reused by a write.
  FabricOperation& next = in_flight.write();
  CHECK(&next == &refused);
  CHECK_FALSE(next.request);
  in_flight.completed(next);
  CHECK(in_flight.idle());
}

TEST_CASE("a request whose send fails awaits no reply") {
  UnderWay in_flight;
  FabricOperation& request = in_flight.request();
  const std::vector<std::byte> reply = in_flight.reply_to(request);
  in_flight.failed(request, kLost);
  CHECK(in_flight.idle());
  CHECK(in_flight.pending.take_error().error().kind == ErrorKind::kPeer);
  CHECK_FALSE(in_flight.take_reply(reply));
}

TEST_CASE("the operations of an abandoned peer fail at once, and keep their contexts until they complete") {
  UnderWay in_flight;
  FabricOperation& write = in_flight.write();
  FabricOperation& unsent = in_flight.request();
  FabricOperation& sent = in_flight.request();
  in_flight.completed(sent);
  const std::vector<std::byte> late = in_flight.reply_to(sent);
  Pending others;
  FabricOperation& elsewhere = in_flight.other.begin();
  in_flight.other.issued(elsewhere, others, Pending::kMessages);
  in_flight.fail_all(in_flight.state, kLost);
  CHECK(in_flight.idle());
  CHECK_FALSE(in_flight.pending.take_error().ok());
  CHECK_FALSE(others.done());
  CHECK_FALSE(in_flight.take_reply(late));
  // Only the context of the request that was sent is free.
  FabricOperation& again = in_flight.write();
  CHECK(&again == &sent);
  FabricOperation& another = in_flight.write();
  CHECK(&another != &write);
  CHECK(&another != &unsent);
  // The errors of the provider arrive later, and change nothing.
  in_flight.failed(write, kLost);
  in_flight.failed(unsent, kLost);
  CHECK(in_flight.pending.count(Pending::kMessages) == 2);
  CHECK(in_flight.pending.take_error().ok());
  in_flight.completed(again);
  in_flight.completed(another);
  in_flight.completed(elsewhere);
  CHECK(in_flight.idle());
  CHECK(others.take_error().ok());
}

TEST_CASE("when a connection ends, requests fail that await replies, and the provider ends the others") {
  UnderWay in_flight;
  FabricOperation& write = in_flight.write();
  FabricOperation& unsent = in_flight.request();
  FabricOperation& answered = in_flight.request();
  FabricOperation& sent = in_flight.request();
  CHECK(in_flight.take_reply(in_flight.reply_to(answered)));
  in_flight.completed(sent);
  in_flight.fail_awaiting(in_flight.state, kLost, false);
  CHECK(in_flight.pending.count(Pending::kMessages) == 3);  // all but the one that was sent
  CHECK_FALSE(in_flight.pending.take_error().ok());
  in_flight.completed(unsent);
  in_flight.completed(answered);
  in_flight.failed(write, kLost);
  CHECK(in_flight.idle());
}

TEST_CASE("data of a slot reach the buffer of a read that completes, and not that of an abandoned one") {
  UnderWay in_flight;
  std::byte bytes[8] = {std::byte{7}};
  LocalMemory::Slot slot{bytes, nullptr, false};
  std::byte kept{}, abandoned{};
  const auto read = [&](std::byte& into) -> FabricOperation& {
    FabricOperation& operation = in_flight.write();
    operation.slot = &slot;
    operation.into = &into;
    operation.into_bytes = 1;
    return operation;
  };
  in_flight.completed(read(kept));
  CHECK(kept == std::byte{7});
  FabricOperation& late = read(abandoned);
  in_flight.fail_all(in_flight.state, kLost);
  in_flight.completed(late);
  CHECK(abandoned == std::byte{0});
}

}  // namespace farside::in_flight_test
