// SPDX-License-Identifier: BSD-3-Clause
// Each operation ends once, whatever comes first: its completion, its reply, an error, the end of its connection, or
// that its peer is abandoned. Without a provider.
#include "transport/fabric/operations_under_way.hpp"

#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

using namespace farside;

namespace {

constexpr Peer kPeer = 3;

struct UnderWay : OperationsUnderWay {
  Pending pending;
  PeerState& state = peers().of(kPeer);

  Operation& write() {
    Operation& operation = begin(state);
    issued(operation, state, pending, nullptr);
    return operation;
  }
  Operation& notification() {
    Operation& operation = begin(state);
    notifies(operation);
    issued(operation, state, pending, nullptr);
    return operation;
  }
  Operation& request(std::uint64_t* fetched = nullptr) {
    Operation& operation = begin(state);
    await_reply(operation);
    operation.fetched = fetched;
    operation.fetched_bytes = fetched != nullptr ? sizeof *fetched : 0;
    issued(operation, state, pending, nullptr);
    return operation;
  }
  // The handler's reply, with one word of data if there is one.
  std::vector<std::byte> reply_to(const Operation& operation, const std::uint64_t* word = nullptr) const {
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
  bool idle() { return pending.done() && state.under_way == 0 && state.requests == 0 && state.issued.empty(); }
};

const Error kLost{ErrorKind::kPeer, "lost"};

}  // namespace

TEST_CASE(
    "a notification ends when it is sent, and is lost with its connection unless a later operation has completed") {
  const auto end_connection = [](UnderWay& under_way) { under_way.fail_awaiting(kPeer, kLost); };
  {
    UnderWay under_way;
    end_connection(under_way);
    CHECK_FALSE(under_way.any_notification_lost());
    under_way.completed(under_way.notification());
    CHECK(under_way.idle());
    CHECK(under_way.lost_notifications(kPeer) == 0);
    end_connection(under_way);
    CHECK(under_way.lost_notifications(kPeer) == 1);
    CHECK(under_way.lost_notifications(kPeer + 1) == 0);
    CHECK(UnderWay::take_lost_notification(under_way.state));
    CHECK_FALSE(UnderWay::take_lost_notification(under_way.state));
    end_connection(under_way);
    CHECK(under_way.lost_notifications(kPeer) == 1);
  }
  for (const bool by_reply : {false, true}) {
    UnderWay under_way;
    Operation& before = under_way.write();
    under_way.completed(under_way.notification());
    under_way.completed(before);
    Operation& behind = by_reply ? under_way.request() : under_way.write();
    Operation& last = under_way.notification();
    under_way.completed(behind);
    if (by_reply) CHECK(under_way.take_reply(under_way.reply_to(behind)));
    // The first one has arrived; the last one may not have.
    CHECK(under_way.state.confirmed == 1);
    under_way.completed(last);
    end_connection(under_way);
    CHECK(under_way.lost_notifications(kPeer) == 1);
  }
  UnderWay under_way;
  under_way.completed(under_way.notification());
  Operation& request = under_way.request();
  under_way.completed(request);
  CHECK(under_way.take_reply(under_way.reply_to(request)));
  end_connection(under_way);
  CHECK(under_way.lost_notifications(kPeer) == 0);
  // An abandoned peer has lost it, too. What failed confirms nothing.
  under_way.completed(under_way.notification());
  under_way.failed(under_way.write(), kLost);
  under_way.fail_all(under_way.state, kLost);
  CHECK(under_way.lost_notifications(kPeer) == 1);
  CHECK_FALSE(under_way.pending.take_error().ok());
}

TEST_CASE("a request ends with the later one of its completion and its reply") {
  for (const bool reply_first : {false, true}) {
    UnderWay under_way;
    std::uint64_t fetched = 0;
    const std::uint64_t word = 42;
    Operation& request = under_way.request(&fetched);
    CHECK(under_way.state.requests == 1);
    const std::vector<std::byte> reply = under_way.reply_to(request, &word);
    if (reply_first) {
      CHECK(under_way.take_reply(reply));
    } else {
      under_way.completed(request);
    }
    CHECK_FALSE(under_way.pending.done());
    if (reply_first) {
      under_way.completed(request);
    } else {
      CHECK(under_way.take_reply(reply));
    }
    CHECK(under_way.idle());
    CHECK(under_way.pending.take_error().ok());
    CHECK(fetched == 42);
    CHECK(under_way.state.completed == 1);
    // The same reply again belongs to nobody, not to the next request either, which has the same context.
    CHECK_FALSE(under_way.take_reply(reply));
    under_way.request();
    CHECK_FALSE(under_way.take_reply(reply));
  }
}

TEST_CASE("an operation that the provider does not take leaves nothing behind") {
  UnderWay under_way;
  Operation& refused = under_way.begin(under_way.state);
  OperationsUnderWay::await_reply(refused);
  CHECK(under_way.peers().any_under_way(kPeer));
  under_way.not_issued(refused, under_way.state);
  CHECK(under_way.idle());
  CHECK_FALSE(under_way.peers().any_under_way(kPeer));
  // Its context is used again, as one of a write.
  Operation& next = under_way.write();
  CHECK(&next == &refused);
  CHECK_FALSE(next.request);
  under_way.completed(next);
  CHECK(under_way.idle());
}

TEST_CASE("a request whose send fails awaits no reply") {
  UnderWay under_way;
  Operation& request = under_way.request();
  const std::vector<std::byte> reply = under_way.reply_to(request);
  under_way.failed(request, kLost);
  CHECK(under_way.idle());
  CHECK(under_way.pending.take_error().error().kind == ErrorKind::kPeer);
  CHECK_FALSE(under_way.take_reply(reply));
}

TEST_CASE("the operations of an abandoned peer fail at once, and keep their contexts until they complete") {
  UnderWay under_way;
  Operation& write = under_way.write();
  Operation& unsent = under_way.request();
  Operation& sent = under_way.request();
  under_way.completed(sent);
  const std::vector<std::byte> late = under_way.reply_to(sent);
  PeerState& other = under_way.peers().of(kPeer + 1);
  Pending others;
  Operation& elsewhere = under_way.begin(other);
  under_way.issued(elsewhere, other, others, nullptr);
  under_way.fail_all(under_way.state, kLost);
  CHECK(under_way.idle());
  CHECK_FALSE(under_way.pending.take_error().ok());
  CHECK_FALSE(others.done());
  CHECK_FALSE(under_way.take_reply(late));
  // Only that of the request that was sent is free.
  Operation& again = under_way.write();
  CHECK(&again == &sent);
  Operation& another = under_way.write();
  CHECK(&another != &write);
  CHECK(&another != &unsent);
  // The provider's errors come later, and change nothing.
  under_way.failed(write, kLost);
  under_way.failed(unsent, kLost);
  CHECK(under_way.pending.count() == 2);
  CHECK(under_way.pending.take_error().ok());
  under_way.completed(again);
  under_way.completed(another);
  under_way.completed(elsewhere);
  CHECK(under_way.idle());
  CHECK(others.take_error().ok());
}

TEST_CASE("when a connection ends, requests fail that await replies, and the provider ends the others") {
  UnderWay under_way;
  Operation& write = under_way.write();
  Operation& unsent = under_way.request();
  Operation& answered = under_way.request();
  Operation& sent = under_way.request();
  CHECK(under_way.take_reply(under_way.reply_to(answered)));
  under_way.completed(sent);
  under_way.fail_awaiting(kPeer, kLost);
  CHECK(under_way.pending.count() == 3);  // all but the one that was sent
  CHECK_FALSE(under_way.pending.take_error().ok());
  under_way.completed(unsent);
  under_way.completed(answered);
  under_way.failed(write, kLost);
  CHECK(under_way.idle());
}

TEST_CASE("data of a slot reach the buffer of a read that completes, and not that of an abandoned one") {
  UnderWay under_way;
  std::byte bytes[8] = {std::byte{7}};
  LocalMemory::Slot slot{bytes, nullptr, false};
  std::byte kept{}, abandoned{};
  const auto read = [&](std::byte& into) -> Operation& {
    Operation& operation = under_way.write();
    operation.slot = &slot;
    operation.into = &into;
    operation.into_bytes = 1;
    return operation;
  };
  under_way.completed(read(kept));
  CHECK(kept == std::byte{7});
  Operation& late = read(abandoned);
  under_way.fail_all(under_way.state, kLost);
  under_way.completed(late);
  CHECK(abandoned == std::byte{0});
}
