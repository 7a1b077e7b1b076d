// SPDX-License-Identifier: BSD-3-Clause
// The agent: executes every kind of request as the kernels do, and nothing that comes from the network makes it touch
// memory outside the region that was named.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/elements.hpp"
#include "transport/fabric/agent.hpp"

using namespace farside;
using namespace farside::testing;

namespace {

constexpr std::size_t kRegionBytes = 4096;
constexpr std::byte kFilling{0x5A};
constexpr std::uint64_t kOrigin = 77;  // fabric address of sender 1

// An agent with one region: a heap block of its own, so that a sanitizer sees what goes beyond, and in builds
// without one, guards on both sides.
struct Fixture {
  explicit Fixture(bool always_locked = false, std::size_t region_bytes = kRegionBytes) : bytes(region_bytes) {
    memory = std::make_unique<std::byte[]>(bytes + 2 * kGuard);
    std::fill_n(memory.get(), bytes + 2 * kGuard, kFilling);
    region = agent.publish({base(), bytes, &lock, false, {}, reinterpret_cast<std::byte*>(words.get()), kWords * 8});
    agent.admit(region, {11, kOrigin, 12}, always_locked);
  }
  std::byte* base() const { return memory.get() + kGuard; }
  bool guards_hold() const {
    const auto holds = [](std::byte b) { return b == kFilling; };
    return std::all_of(memory.get(), base(), holds) && std::all_of(base() + bytes, base() + bytes + kGuard, holds);
  }
  RequestHeader header(MessageKind kind, ReduceOp op, BasicType type, std::uint64_t offset, std::uint32_t count,
                       bool fetch) const {
    return {kind, op, type, std::uint8_t{fetch}, 1, region, offset, count, 5, 42};
  }
  RequestHeader accumulate(ReduceOp op, BasicType type, std::uint64_t offset, std::uint32_t count) const {
    return header(MessageKind::kAccumulate, op, type, offset, count, true);
  }
  RequestHeader compare_and_swap(BasicType type, std::uint64_t offset, std::uint32_t count = 1) const {
    return header(MessageKind::kCompareAndSwap, ReduceOp::kSum, type, offset, count, true);
  }

#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kGuard = 0;
#else
  static constexpr std::size_t kGuard = 65536;
#endif
  std::size_t bytes;
  std::unique_ptr<std::byte[]> memory;
  static constexpr std::size_t kWords = 16;
  std::unique_ptr<std::uint64_t[]> words = std::make_unique<std::uint64_t[]>(kWords);  // the control block
  AccumulateLockWord lock;
  Agent agent;
  std::uint64_t region = 0;
};

using Bytes = std::vector<std::byte>;

Bytes message_of(const RequestHeader& header, const Bytes& payload = {}) {
  Bytes message(sizeof header + payload.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), message.begin() + sizeof header);
  return message;
}

// What a request carries: the last element comes without the gap behind it.
std::size_t payload_bytes(BasicType type, std::size_t count) {
  return (count - 1) * traits(type).extent + end_of_data(type);
}

Bytes elements(BasicType type, std::size_t count, unsigned seed) {
  Bytes buffer(count * traits(type).extent, kFilling);
  fill_elements(type, buffer.data(), count, seed);
  buffer.resize(payload_bytes(type, count));
  buffer.shrink_to_fit();
  return buffer;
}

// The answer is a refusal, and nothing was touched.
void check_refused(Fixture& on, const Bytes& message, bool known_sender = true) {
  const Bytes before(on.base(), on.base() + on.bytes);
  const Agent::Answer answer = on.agent.execute(message);
  CHECK(answer.refused != nullptr);
  CHECK(answer.known_sender == known_sender);
  CHECK(answer.fetched.empty());
  if (known_sender) {
    CHECK(answer.peer == kOrigin);
    CHECK(answer.header.status == ReplyStatus::kRefused);
  }
  CHECK(std::equal(before.begin(), before.end(), on.base()));
  CHECK(on.guards_hold());
  CHECK(on.lock.held.load() == 0);
}

}  // namespace

TEST_CASE("the agent combines every type by every operation that MPI allows, as the kernels do") {
  for (const bool always_locked : {false, true}) {
    for (const BasicType type : all_types()) {
      for (const ReduceOp op : all_ops()) {
        if (!allowed(op, type)) continue;
        for (const std::size_t count : {std::size_t{1}, std::size_t{3}, kMaxPayload / 32 / 4}) {
          for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{32}, std::uint64_t{33}}) {
            for (const bool fetch : {false, true}) {
              INFO(traits(type).name << " " << name(op) << " x" << count << " at " << offset << " fetch " << fetch);
              Fixture on(always_locked);
              const std::size_t extent = traits(type).extent;
              fill_elements(type, on.base() + offset, count, 1);
              Bytes model(on.base(), on.base() + on.bytes);
              Bytes fetched(count * extent);
              const Bytes origin = elements(type, count, 2);
              combine(AtomicWay::kLocked, op, type, model.data() + offset, origin.data(), fetched.data(), count);
              const Agent::Answer answer = on.agent.execute(message_of(
                  on.header(MessageKind::kAccumulate, op, type, offset, static_cast<std::uint32_t>(count), fetch),
                  op == ReduceOp::kNoOp ? Bytes{} : origin));
              REQUIRE(answer.refused == nullptr);
              REQUIRE(answer.known_sender);
              REQUIRE(answer.peer == kOrigin);
              REQUIRE(answer.header.kind == MessageKind::kReply);
              REQUIRE(answer.header.status == ReplyStatus::kDone);
              REQUIRE(answer.header.operation == 42);
              REQUIRE(answer.header.generation == 5);
              REQUIRE(answer.fetched.size() == (fetch ? count * extent : 0));
              if (fetch) REQUIRE(same_elements(type, answer.fetched.data(), fetched.data(), count));
              REQUIRE(same_elements(type, on.base() + offset, model.data() + offset, count));
              REQUIRE(gaps_hold(type, on.base() + offset, count, kFilling));
              const auto end = static_cast<std::ptrdiff_t>(offset + count * extent);
              REQUIRE(std::equal(model.begin() + end, model.end(), on.base() + end));
              REQUIRE(on.guards_hold());
              REQUIRE(on.lock.held.load() == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("the agent compares and swaps, and answers with what was there") {
  for (const BasicType type : all_types()) {
    if (has_gap(type)) continue;
    for (const std::uint64_t offset : {std::uint64_t{64}, std::uint64_t{65}}) {
      INFO(traits(type).name << " at " << offset);
      Fixture on;
      const std::size_t extent = traits(type).extent;
      const Bytes there(extent, std::byte{1}), other(extent, std::byte{0}), desired(extent, std::byte{3});
      std::copy(there.begin(), there.end(), on.base() + offset);
      const RequestHeader header = on.compare_and_swap(type, offset);
      Bytes payload = other;
      payload.insert(payload.end(), desired.begin(), desired.end());
      Agent::Answer answer = on.agent.execute(message_of(header, payload));
      REQUIRE(answer.header.status == ReplyStatus::kDone);
      CHECK(answer.fetched == there);
      CHECK(std::equal(there.begin(), there.end(), on.base() + offset));
      std::copy(there.begin(), there.end(), payload.begin());
      answer = on.agent.execute(message_of(header, payload));
      CHECK(answer.fetched == there);
      CHECK(std::equal(desired.begin(), desired.end(), on.base() + offset));
      CHECK(on.base()[offset + extent] == kFilling);
      CHECK(on.base()[offset - 1] == kFilling);
      CHECK(on.lock.held.load() == 0);
    }
  }
}

TEST_CASE("a pair whose data ends with the region is within it, whatever gap would follow") {
  Fixture on(false, 32 + 12);
  fill_elements(BasicType::kDoubleInt, on.base() + 32, 1, 1);
  const Agent::Answer answer = on.agent.execute(
      message_of(on.header(MessageKind::kAccumulate, ReduceOp::kMaxloc, BasicType::kDoubleInt, 32, 1, true),
                 elements(BasicType::kDoubleInt, 1, 2)));
  CHECK(answer.header.status == ReplyStatus::kDone);
  CHECK(on.guards_hold());
}

TEST_CASE("a message shorter than its header is dropped") {
  Fixture on;
  const Bytes whole = message_of(on.header(MessageKind::kAccumulate, ReduceOp::kSum, BasicType::kInt32, 0, 1, false));
  for (std::size_t bytes = 0; bytes < sizeof(RequestHeader); ++bytes) {
    check_refused(on, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)), false);
  }
}

TEST_CASE("a payload of a wrong length is refused") {
  Fixture on;
  for (const std::size_t bytes : {0, 1, 11, 13, 16, 8192}) {
    check_refused(on, message_of(on.accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 3), Bytes(bytes)));
    check_refused(on, message_of(on.compare_and_swap(BasicType::kInt32, 0), Bytes(bytes)));
  }
  check_refused(on, message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt32, 0, 1), Bytes(4)));
}

TEST_CASE("a request beyond its region is refused, overflow or not") {
  Fixture on;
  const std::uint64_t offsets[] = {kRegionBytes - 7, kRegionBytes, kRegionBytes + 1, UINT64_MAX, UINT64_MAX - 7,
                                   std::uint64_t{1} << 63, UINT64_MAX - kRegionBytes};
  for (const std::uint64_t offset : offsets) {
    INFO(offset);
    check_refused(on, message_of(on.accumulate(ReduceOp::kSum, BasicType::kInt64, offset, 1), Bytes(8)));
    check_refused(on, message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt64, offset, 1)));
    check_refused(on, message_of(on.compare_and_swap(BasicType::kInt64, offset), Bytes(16)));
  }
  for (const std::uint32_t count : {0U, 513U, 1024U, 1025U, 0x20000000U, 0x20000001U, 0x80000000U, UINT32_MAX}) {
    INFO(count);
    check_refused(on, message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, count)));
    check_refused(on, message_of(on.accumulate(ReduceOp::kSum, BasicType::kInt64, 0, count), Bytes(8)));
    check_refused(on, message_of(on.compare_and_swap(BasicType::kInt64, 0, count), Bytes(16)));
  }
}

TEST_CASE("no request makes the agent answer with more than a message holds") {
  Fixture on(false, 16 * kMaxPayload);
  const auto most = static_cast<std::uint32_t>(kMaxPayload / 8);
  CHECK(on.agent.execute(message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, most))).fetched.size() ==
        kMaxPayload);
  check_refused(on, message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, most + 1)));
  check_refused(on, message_of(on.accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, 16 * most)));
}

TEST_CASE("unknown operations, types, regions and senders are refused") {
  Fixture on;
  const RequestHeader good = on.accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 1);
  for (const std::size_t number : {kReduceOps, std::size_t{200}, std::size_t{255}}) {
    RequestHeader bad = good;
    bad.op = static_cast<ReduceOp>(number);
    check_refused(on, message_of(bad, Bytes(4)));
  }
  for (const std::size_t number : {kBasicTypes, std::size_t{200}, std::size_t{255}}) {
    RequestHeader bad = good;
    bad.type = static_cast<BasicType>(number);
    check_refused(on, message_of(bad, Bytes(4)));
  }
  for (const std::uint32_t sender : {3U, 1000U, UINT32_MAX}) {
    RequestHeader bad = good;
    bad.sender = sender;
    check_refused(on, message_of(bad, Bytes(4)), false);
  }
  RequestHeader bad = good;
  bad.region = on.region + 1;
  check_refused(on, message_of(bad, Bytes(4)), false);
  bad.region = 0;
  check_refused(on, message_of(bad, Bytes(4)), false);
}

TEST_CASE("an operation that MPI does not define for the type is refused") {
  Fixture on;
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (allowed(op, type)) continue;
      INFO(traits(type).name << " " << name(op));
      check_refused(on, message_of(on.accumulate(op, type, 0, 1), Bytes(payload_bytes(type, 1))));
    }
    if (!has_gap(type)) continue;
    INFO(traits(type).name << " compare_and_swap");
    check_refused(on, message_of(on.compare_and_swap(type, 0), Bytes(2 * std::size_t{traits(type).extent})));
  }
}

TEST_CASE("a put with an addition puts, adds and fetches, or does nothing") {
  Fixture on;
  const auto message = [&](std::uint64_t offset, std::size_t bytes, std::size_t said, const ControlAdd& add) {
    Bytes payload(bytes + sizeof add, std::byte{0x21});
    std::memcpy(payload.data() + bytes, &add, sizeof add);
    return message_of(on.header(MessageKind::kPutAndAdd, ReduceOp::kReplace, BasicType::kByte, offset,
                                static_cast<std::uint32_t>(said), true), payload);
  };
  std::uint64_t sum = 0;
  for (const std::size_t bytes : {0UL, 1UL, 13UL, kRegionBytes}) {
    std::fill_n(on.base(), on.bytes, kFilling);
    const std::uint64_t offset = (kRegionBytes - bytes) / 2;
    const Agent::Answer answer = on.agent.execute(message(offset, bytes, bytes, {8 * 15, 7}));
    CHECK(answer.refused == nullptr);
    CHECK(answer.header.status == ReplyStatus::kDone);
    std::uint64_t before = 1;
    REQUIRE(answer.fetched.size() == sizeof before);
    std::memcpy(&before, answer.fetched.data(), sizeof before);
    CHECK(before == sum);
    CHECK(on.words[15] == (sum += 7));
    for (std::size_t i = 0; i < on.bytes; ++i) {
      if (on.base()[i] != (i >= offset && i < offset + bytes ? std::byte{0x21} : kFilling)) FAIL("byte " << i);
    }
  }
  check_refused(on, message(kRegionBytes, 1, 1, {0, 7}));
  check_refused(on, message(UINT64_MAX, 8, 8, {0, 7}));
  check_refused(on, message(0, 8, 9, {0, 7}));
  check_refused(on, message(0, 8, 7, {0, 7}));
  check_refused(on, message(0, 8, UINT32_MAX, {0, 7}));
  for (const std::uint64_t word : {std::uint64_t{1}, std::uint64_t{124}, std::uint64_t{128}, UINT64_MAX - 7}) {
    check_refused(on, message(0, 8, 8, {word, 7}));
  }
  CHECK(std::count(on.words.get(), on.words.get() + on.kWords, 0U) == 15);
}

TEST_CASE("nobody may ask before admission or after withdrawal") {
  Fixture on;
  std::byte other[8] = {};
  const std::uint64_t unborn = on.agent.publish({other, sizeof other, &on.lock, false, {}});
  RequestHeader header = on.accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 1);
  header.region = unborn;
  check_refused(on, message_of(header, Bytes(4)), false);
  header.sender = 0;
  check_refused(on, message_of(header, Bytes(4)), false);
  on.agent.withdraw(on.region);
  check_refused(on, message_of(on.accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 1), Bytes(4)),
                false);
  on.agent.withdraw(on.region);
  CHECK(on.region != unborn);
}

TEST_CASE("no mutation of a request makes the agent touch memory outside the region") {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  Fixture on;
  std::size_t done = 0, refused = 0;
  for (int round = 0; round < 60000; ++round) {
    const auto type = static_cast<BasicType>(below(kBasicTypes));
    const auto op = static_cast<ReduceOp>(below(kReduceOps));
    const bool swap = below(4) == 0;
    const auto count = static_cast<std::uint32_t>(swap ? 1 : 1 + below(40));
    RequestHeader header = on.header(swap ? MessageKind::kCompareAndSwap : MessageKind::kAccumulate, op, type,
                                     below(kRegionBytes), count, below(2) == 0);
    const std::size_t extent = traits(type).extent;
    Bytes payload(swap ? 2 * extent : op == ReduceOp::kNoOp ? 0 : payload_bytes(type, count));
    for (std::byte& byte : payload) byte = std::byte(random());
    Bytes message = message_of(header, payload);
    // None, one or several mutations of bytes, but mostly not of the region's id; now and then of the length.
    for (std::size_t n = below(4); n > 0; --n) {
      std::size_t at = below(sizeof header);
      if (at >= 8 && at < 16 && below(16) != 0) at = 16 + below(sizeof header - 16);
      const std::byte edges[] = {std::byte{0}, std::byte{1}, std::byte{0x7F}, std::byte{0x80}, std::byte{0xFF},
                                 std::byte(random())};
      message[at] = edges[below(std::size(edges))];
    }
    if (below(8) == 0) message.resize(below(message.size() + 64));
    message.shrink_to_fit();
    const Bytes before(on.base(), on.base() + on.bytes);
    const Agent::Answer answer = on.agent.execute(message);
    REQUIRE(on.lock.held.load() == 0);
    if (answer.refused != nullptr) {
      ++refused;
      REQUIRE(answer.fetched.empty());
      REQUIRE((!answer.known_sender || answer.header.status == ReplyStatus::kRefused));
      REQUIRE(std::equal(before.begin(), before.end(), on.base()));
    } else {
      ++done;
      REQUIRE(answer.known_sender);
      REQUIRE(answer.fetched.size() <= kMaxPayload);
    }
    if (round % 1000 == 0) REQUIRE(on.guards_hold());
  }
  CHECK(on.guards_hold());
  // The mutations reach both sides.
  CHECK(done > 5000);
  CHECK(refused > 5000);
}

TEST_CASE("no random bytes make the agent touch anything") {
  std::mt19937 random(7);
  Fixture on;
  const Bytes before(on.base(), on.base() + on.bytes);
  for (int round = 0; round < 20000; ++round) {
    Bytes message(random() % 200);
    for (std::byte& byte : message) byte = std::byte(random());
    const Agent::Answer answer = on.agent.execute(message);
    REQUIRE(answer.refused != nullptr);
    REQUIRE_FALSE(answer.known_sender);
  }
  CHECK(std::equal(before.begin(), before.end(), on.base()));
  CHECK(on.guards_hold());
}
