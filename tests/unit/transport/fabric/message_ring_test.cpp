// SPDX-License-Identifier: BSD-3-Clause
// Messages through rings, by a provider that copies at once what is written, or a part of it.
#include "transport/fabric/message_ring.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tests/support/seeds.hpp"

namespace farside::message_ring_test {

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMostCopied = 128;

// A connected endpoint. Addresses are pointers.
struct Provider {
  fid_ep endpoint{};
  fi_ops_rma calls{};
  std::size_t arrives = std::numeric_limits<std::size_t>::max();  // so many bytes of a write
  ssize_t refuses = 0;                                            // the code of writes that are not taken
  bool takes_credits = true;
  std::uint64_t flags = 0;  // of the last write, and its context
  void* context = nullptr;

  Provider() {
    calls.size = sizeof calls;
    calls.writemsg = [](fid_ep* to, const fi_msg_rma* message, std::uint64_t asked) {
      Provider& self = *reinterpret_cast<Provider*>(to);
      self.flags = asked;
      self.context = message->context;
      if (self.refuses != 0) return self.refuses;
      Bytes all;
      for (std::size_t i = 0; i < message->iov_count; ++i) {
        const auto* const from = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
        all.insert(all.end(), from, from + message->msg_iov[i].iov_len);
      }
      std::size_t done = 0;
      for (std::size_t i = 0; i < message->rma_iov_count && done < self.arrives; ++i) {
        const fi_rma_iov& there = message->rma_iov[i];
        const std::size_t part = std::min(there.len, self.arrives - done);
        std::memcpy(reinterpret_cast<void*>(there.addr), all.data() + done, part);  // NOLINT
        done += there.len;
      }
      return ssize_t{0};
    };
    calls.inject = [](fid_ep* to, const void* from, std::size_t bytes, fi_addr_t, std::uint64_t at, std::uint64_t) {
      Provider& self = *reinterpret_cast<Provider*>(to);
      if (!self.takes_credits) return ssize_t{-FI_EAGAIN};
      std::memcpy(reinterpret_cast<void*>(at), from, bytes);  // NOLINT
      return ssize_t{0};
    };
    endpoint.rma = &calls;
  }
};

struct Message : Context {
  Message() : Context(Kind::kReply) {}
};

// One end of a connection.
struct End {
  struct alignas(64) Memory : std::array<std::byte, MessageRing::kMemory> {};
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();
  MessageRing ring{*memory, {reinterpret_cast<std::uint64_t>(memory->data()), 1}, kMostCopied};
  Provider provider;
  std::vector<Bytes> taken;

  ssize_t write(const Bytes& message, std::size_t cut = 0) {
    Message context;
    auto* const data = const_cast<std::byte*>(message.data());
    const std::array<iovec, 2> parts = {{{data, cut}, {data + cut, message.size() - cut}}};
    using enum MessageRing::Release;
    return ring.write(&provider.endpoint, parts, context, cut % 2 == 0 ? kCompletion : kAnswer);
  }
  bool take() {
    return ring.take(&provider.endpoint, true, [this](std::span<const std::byte> message) {
      REQUIRE(reinterpret_cast<std::uintptr_t>(message.data()) % 16 == 0);
      taken.emplace_back(message.begin(), message.end());
    });
  }
};

struct Pair {
  End near, far;
  Pair() {
    near.ring.connect(far.ring.address());
    far.ring.connect(near.ring.address());
  }
};

Bytes bytes_of(std::size_t count, std::uint8_t value) { return Bytes(count, std::byte{value}); }

}  // namespace

TEST_CASE("messages of any size come out of a ring in their order, both ways, and credits hold them back") {
  for (const std::uint32_t seed : testing::many_seeds(8)) {
    CAPTURE(testing::named(seed));
    std::mt19937 random(seed);
    Pair pair;
    const bool large = random() % 2 == 0;
    std::array<End*, 2> ends = {&pair.near, &pair.far};
    std::array<std::deque<Bytes>, 2> in_flight;  // by the writer
    std::size_t refused = 0, messages = 0;
    for (int step = 0; step < 20'000; ++step) {
      const std::size_t side = random() % 2;
      End& writer = *ends[side];
      End& reader = *ends[1 - side];
      if (random() % 8 != 0) {
        Bytes message(1 + random() % (large ? kMaxMessage : 100));
        // Words that look like the end of a frame are among the data.
        for (std::size_t i = 0; i + 8 <= message.size(); i += 8) {
          const std::uint64_t word = random() % 4 == 0 ? random() : RingFrame::kArrived;
          std::memcpy(message.data() + i, &word, sizeof word);
        }
        const ssize_t code = writer.write(message, random() % (message.size() + 1));
        REQUIRE((code == 0 || code == -FI_EAGAIN));
        if (code == 0) in_flight[side].push_back(std::move(message));
        refused += code != 0 ? 1U : 0U;
      } else {
        REQUIRE(reader.take() == !in_flight[side].empty());
        REQUIRE(reader.taken.size() == in_flight[side].size());
        for (const Bytes& each : reader.taken) {
          REQUIRE(each == in_flight[side].front());
          in_flight[side].pop_front();
          ++messages;
        }
        reader.taken.clear();
      }
    }
    CHECK(messages > 1'000);
    if (large) CHECK(refused > 100);
  }
}

TEST_CASE("credits that the provider refuses are given later") {
  Pair pair;
  pair.far.provider.takes_credits = false;
  while (pair.near.write(bytes_of(100, 3)) == 0) {
  }
  REQUIRE(pair.far.take());
  CHECK(pair.far.ring.owes_credits());
  CHECK(pair.near.write(bytes_of(100, 3)) == -FI_EAGAIN);
  pair.far.provider.takes_credits = true;
  CHECK_FALSE(pair.far.take());
  CHECK_FALSE(pair.far.ring.owes_credits());
  CHECK(pair.near.write(bytes_of(100, 3)) == 0);
}

TEST_CASE("a message has a completion if its memory must stay until then, and else no context either") {
  using enum MessageRing::Release;
  for (const MessageRing::Release release : {kCompletion, kAtOnce, kAnswer}) {
    Pair pair;
    Bytes message = bytes_of(50, 5);
    Message context;
    const std::array<iovec, 1> parts = {{{message.data(), message.size()}}};
    REQUIRE(pair.near.ring.write(&pair.near.provider.endpoint, parts, context, release) == 0);
    const std::uint64_t flags = release == kCompletion ? FI_COMPLETION : release == kAtOnce ? FI_INJECT : 0;
    CHECK(pair.near.provider.flags == flags);
    CHECK(pair.near.provider.context == (release == kCompletion ? &context.provider_context : nullptr));
    REQUIRE(pair.far.take());
    CHECK(pair.far.taken[0] == message);
  }
  const Pair pair;
  iovec parts[] = {{nullptr, 8}, {nullptr, kMostCopied - sizeof(RingFrame) - 8}};
  CHECK(pair.near.ring.copies(parts));
  ++parts[1].iov_len;
  CHECK_FALSE(pair.near.ring.copies(parts));
}

TEST_CASE("a message is taken when its last byte has arrived") {
  const Bytes message = bytes_of(100, 9);
  const std::size_t all = message.size() + sizeof(RingFrame);
  for (std::size_t arrived = 0; arrived < all; ++arrived) {
    Pair pair;
    pair.near.provider.arrives = arrived;
    REQUIRE(pair.near.write(message) == 0);
    CHECK_FALSE(pair.far.take());
  }
  Pair pair;
  pair.near.provider.arrives = all;
  REQUIRE(pair.near.write(message) == 0);
  CHECK(pair.far.take());
}

TEST_CASE("a frame that cannot be right ends the use of a ring") {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{kMaxMessage + 1}, ~std::uint64_t{0}}) {
    Pair pair;
    const RingFrame frame{bytes, RingFrame::kArrived};
    std::memcpy(pair.far.memory->data() + MessageRing::kCreditBytes, &frame, sizeof frame);
    CHECK_FALSE(pair.far.take());
    CHECK_FALSE(pair.far.take());
    CHECK(pair.far.taken.empty());
  }
}

TEST_CASE("credits that are half written are never too many") {
  Pair pair;
  std::size_t written = 0;
  while (pair.near.write(bytes_of(100, 1)) == 0) ++written;
  // The lower bytes of a number arrive first.
  std::memset(pair.near.memory->data(), 0, 8);
  CHECK(pair.near.write(bytes_of(100, 1)) == -FI_EAGAIN);
  REQUIRE(pair.far.take());
  CHECK(pair.near.write(bytes_of(100, 1)) == 0);
  std::memset(pair.near.memory->data(), 0, 2);
  for (std::size_t i = 1; i < written; ++i) REQUIRE(pair.near.write(bytes_of(100, 1)) == 0);
  CHECK(pair.near.write(bytes_of(100, 1)) == -FI_EAGAIN);
}

}  // namespace farside::message_ring_test
