// SPDX-License-Identifier: BSD-3-Clause
// Answers that the provider takes, refuses, or takes only so many of at once, and what becomes of buffers for messages
// that it refuses.
#include "transport/fabric/messages.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace farside::messages_test {

using namespace std::chrono_literals;

namespace {

Statistics statistics;

// A provider that refuses what goes to some peers.
struct Provider {
  std::map<Peer, ssize_t> codes;  // of peers that are refused
  std::vector<Reply*> has;
  std::vector<std::uint64_t> sent;  // Reply::header.operation
  std::size_t tries = 0;

  auto send() {
    return [this](Reply& reply) -> ssize_t {
      ++tries;
      if (codes.contains(reply.peer)) return codes[reply.peer];
      has.push_back(&reply);
      sent.push_back(reply.header.operation);
      return 0;
    };
  }
  void complete(Replies& replies) {
    for (Reply* each : has) replies.completed(*each);
    has.clear();
  }
};

void keep(Replies& replies, Peer peer, std::uint64_t number) {
  std::unique_ptr<Reply> reply = replies.take(peer);
  reply->header.operation = number;
  replies.keep(std::move(reply));
}

using Numbers = std::vector<std::uint64_t>;

// A queue that has room for some receives, and then returns FI_EAGAIN.
struct Queue {
  Queue() {
    calls.size = sizeof calls;
    calls.recv = [](fid_ep* posted_to, void*, std::size_t, void*, fi_addr_t, void* context) -> ssize_t {
      auto* const queue = static_cast<Queue*>(posted_to->fid.context);
      ++queue->asked;
      if (queue->taken.size() == queue->room) return -FI_EAGAIN;
      queue->taken.push_back(context);
      return 0;
    };
    endpoint.fid.context = this;
    endpoint.msg = &calls;
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  fi_ops_msg calls{};
  fid_ep endpoint{};
  std::size_t room = 1000;
  std::vector<void*> taken;
  std::size_t asked = 0;
};

const QueueLimits kLimits{.first_receives = 4, .receives_per_peer = 2, .most_receives = 10};

Receive& buffer_of(void* context) { return static_cast<Receive&>(*reinterpret_cast<Context*>(context)); }

}  // namespace

TEST_CASE("a peer that takes no answers delays no others, and gets its own in their order") {
  LocalMemory memory;
  Provider provider;
  Replies replies(100, memory, statistics, provider.send());
  provider.codes[1] = -FI_EAGAIN;
  for (std::uint64_t i = 0; i < 6; ++i) keep(replies, 1 + i % 2, i);
  replies.send_unsent({});
  CHECK(provider.sent == Numbers{1, 3, 5});
  CHECK(replies.any_unsent());
  provider.codes.clear();
  replies.send_unsent({});
  CHECK(provider.sent == Numbers{1, 3, 5, 0, 2, 4});
  CHECK_FALSE(replies.any_unsent());
  CHECK_FALSE(replies.idle());
  provider.complete(replies);
  CHECK(replies.idle());
}

TEST_CASE("peers that take no answers cost one try each, however many answers wait for them") {
  LocalMemory memory;
  Provider provider;
  Replies replies(10000, memory, statistics, provider.send());
  provider.codes = {{1, -FI_EAGAIN}, {2, -FI_EAGAIN}};
  constexpr std::uint64_t kAnswers = 100;
  for (std::uint64_t i = 0; i < kAnswers; ++i) {
    keep(replies, 1 + i % 2, i);
    replies.send_unsent({});
  }
  CHECK(provider.tries <= 2 * kAnswers);
  // Another one is not tried at all; one to another peer is sent.
  provider.tries = 0;
  for (const Peer peer : {1, 3}) {
    std::unique_ptr<Reply> reply = replies.take(peer);
    reply->header.operation = 1000 + peer;
    replies.answer(std::move(reply));
  }
  CHECK(provider.tries == 1);
  CHECK(provider.sent == Numbers{1003});
  provider.codes.clear();
  replies.send_unsent({});
  CHECK(provider.sent.size() == kAnswers + 2);
  provider.complete(replies);
  CHECK(replies.idle());
}

TEST_CASE("the provider never has more answers than the limit") {
  LocalMemory memory;
  Provider provider;
  Replies replies(3, memory, statistics, provider.send());
  for (std::uint64_t i = 0; i < 8; ++i) keep(replies, i, i);
  for (const std::size_t more : {3, 3, 2}) {
    replies.send_unsent({});
    CHECK(provider.has.size() == more);
    CHECK(replies.room() == (more < 3));
    provider.complete(replies);
  }
  CHECK(provider.sent == Numbers{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(replies.idle());
}

TEST_CASE("an answer that is refused for too long, or with another error, is dropped") {
  LocalMemory memory;
  Provider provider;
  Replies replies(10, memory, statistics, provider.send());
  provider.codes = {{1, -FI_EAGAIN}, {2, -FI_ENOTCONN}};
  keep(replies, 1, 1);
  keep(replies, 2, 2);
  replies.send_unsent(1h);
  CHECK(replies.any_unsent());
  replies.send_unsent(1ns);
  CHECK(replies.idle());
  CHECK(provider.sent.empty());
  // A refusal of before does not count for the next answer in the same buffer.
  keep(replies, 1, 3);
  keep(replies, 1, 4);
  replies.send_unsent(1h);
  provider.codes.clear();
  replies.send_unsent(1h);
  CHECK(provider.sent == Numbers{3, 4});
  provider.complete(replies);
}

TEST_CASE("a queue without memory for the first receives is an error") {
  const LocalMemory memory;
  Queue queue;
  queue.room = 3;
  Receives receives(kLimits, memory);
  const Status begun = receives.begin(&queue.endpoint, 100);
  REQUIRE(!begun.ok());
  CHECK(begun.error().kind == ErrorKind::kNoRoute);
  CHECK(begun.error().text.find("Cannot allocate memory") != std::string::npos);
  CHECK(queue.asked == 4);
}

TEST_CASE("without memory for more receives, those that there are do") {
  const LocalMemory memory;
  Queue queue;
  Receives receives(kLimits, memory);
  REQUIRE(receives.begin(&queue.endpoint, 100).ok());
  CHECK(receives.count() == 4);
  queue.room = 6;
  receives.follow(2);
  CHECK(receives.count() == 6);
  const std::size_t before = queue.asked;
  receives.follow(3);
  CHECK(queue.asked == before);  // they are not asked for again
}

TEST_CASE("a receive that is refused for now is posted later") {
  const LocalMemory memory;
  Queue queue;
  Receives receives(kLimits, memory);
  REQUIRE(receives.begin(&queue.endpoint, 100).ok());
  void* const first = queue.taken[0];
  void* const second = queue.taken[1];
  CHECK(!receives.any_refused());

  queue.room = queue.taken.size();
  receives.post_again(buffer_of(first));
  receives.post_again(buffer_of(second));
  CHECK(receives.any_refused());
  receives.post_refused();
  CHECK(receives.any_refused());
  CHECK(queue.taken.size() == 4);

  queue.room += 1;
  receives.post_refused();
  CHECK(receives.any_refused());
  queue.room += 1;
  receives.post_refused();
  CHECK(!receives.any_refused());
  REQUIRE(queue.taken.size() == 6);
  CHECK(queue.taken[4] == first);
  CHECK(queue.taken[5] == second);
}

}  // namespace farside::messages_test
