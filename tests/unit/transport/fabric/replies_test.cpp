// SPDX-License-Identifier: BSD-3-Clause
// Answers that the provider takes, refuses, or takes only so many of at once.
#include <chrono>
#include <map>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/messages.hpp"

namespace farside::replies_test {

using namespace std::chrono_literals;

namespace {

Statistics statistics;

// A provider that refuses what goes to some peers.
struct Provider {
  std::map<Peer, ssize_t> codes;  // of peers that are refused
  std::vector<Reply*> has;
  std::vector<std::uint64_t> sent;  // Reply::header.operation
  bool copies = false;
  std::size_t tries = 0;

  auto send() {
    return [this](Reply& reply) -> ssize_t {
      ++tries;
      if (codes.contains(reply.peer)) return codes[reply.peer];
      reply.copied = copies;
      if (!copies) has.push_back(&reply);
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

TEST_CASE("a message that is sent at once is under way, or gone") {
  LocalMemory memory;
  Provider provider;
  Replies replies(10, memory, statistics, provider.send());
  provider.codes[1] = -FI_EAGAIN;
  std::unique_ptr<Reply> reply = replies.take(1, MessageKind::kProbe);
  reply->fetched.resize(8);
  CHECK(replies.send(std::move(reply)) == -FI_EAGAIN);
  CHECK(replies.idle());
  std::unique_ptr<Reply> again = replies.take(2);
  CHECK(replies.send(std::move(again)) == 0);
  CHECK_FALSE(replies.idle());
  provider.complete(replies);
  CHECK(replies.idle());
}

TEST_CASE("an answer holds a slot of registered memory until it is complete or dropped") {
  LocalMemory memory;
  Provider provider;
  Replies replies(10, memory, statistics, provider.send());
  LocalMemory::Slot slot;
  LocalMemory::Slot* taken = nullptr;
  const auto send = [&](ssize_t code) {
    provider.codes[1] = code;
    std::unique_ptr<Reply> reply = replies.take(1);
    CHECK(reply->slot == nullptr);
    reply->slot = &slot;
    return replies.send(std::move(reply));
  };
  CHECK(send(-FI_ENOTCONN) == -FI_ENOTCONN);
  REQUIRE(memory.take(false, taken) == 0);
  CHECK(taken == &slot);
  provider.codes.clear();
  std::unique_ptr<Reply> kept = replies.take(2);
  kept->slot = &slot;
  replies.keep(std::move(kept));
  replies.send_unsent({});
  provider.complete(replies);
  REQUIRE(memory.take(false, taken) == 0);
  CHECK(taken == &slot);
}

TEST_CASE("an answer that the provider has copied is free at once") {
  LocalMemory memory;
  Provider provider;
  Replies replies(1, memory, statistics, provider.send());
  provider.copies = true;
  for (std::uint64_t i = 0; i < 3; ++i) keep(replies, 1, i);
  replies.send_unsent({});
  CHECK(provider.sent == Numbers{0, 1, 2});
  CHECK(replies.idle());
  std::unique_ptr<Reply> direct = replies.take(1);
  CHECK_FALSE(direct->copied);
  CHECK(replies.send(std::move(direct)) == 0);
  CHECK(replies.idle());
  provider.copies = false;
  keep(replies, 1, 4);
  replies.send_unsent({});
  CHECK_FALSE(replies.idle());
  provider.complete(replies);
  CHECK(replies.idle());
}

}  // namespace farside::replies_test
