// SPDX-License-Identifier: BSD-3-Clause
// The agent: executes every kind of request as the kernels do, and nothing that comes from the network makes it touch
// memory outside the region that was named.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/elements.hpp"
#include "transport/agent/agent.hpp"
#include "transport/agent/operation_list.hpp"

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
  RequestHeader header(MessageKind kind = MessageKind::kOperations) const { return {kind, 0, 0, 1, region, 0, 0, 5, 42}; }

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

template <class T>
void append(Bytes& message, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  message.insert(message.end(), bytes, bytes + sizeof value);
}

Bytes message_of(const RequestHeader& header, const Bytes& payload = {}) {
  Bytes message;
  append(message, header);
  message.insert(message.end(), payload.begin(), payload.end());
  return message;
}

ListEntry accumulate(ReduceOp op, BasicType type, std::uint64_t offset, std::uint32_t count, bool fetch = true) {
  return {OperationKind::kAccumulate, op, type, std::uint8_t{fetch}, count, offset, 0, 1, 0};
}
ListEntry compare_and_swap(BasicType type, std::uint64_t offset, std::uint32_t count = 1) {
  return {OperationKind::kCompareAndSwap, ReduceOp::kReplace, type, 1, count, offset, 0, 1, 0};
}
ListEntry put(std::uint64_t offset, std::uint32_t bytes, std::uint32_t blocks = 1, std::int64_t stride = 0) {
  return {OperationKind::kPut, ReduceOp::kReplace, BasicType::kByte, 0, bytes, offset, stride, blocks, 0};
}
ListEntry get(std::uint64_t offset, std::uint32_t bytes, std::uint32_t blocks = 1, std::int64_t stride = 0) {
  return {OperationKind::kGet, ReduceOp::kNoOp, BasicType::kByte, 1, bytes, offset, stride, blocks, 0};
}

// An entry with its data, padded as they are in a list.
Bytes listed(const ListEntry& entry, const Bytes& data = {}) {
  Bytes list;
  append(list, entry);
  list.insert(list.end(), data.begin(), data.end());
  list.resize((list.size() + 7) / 8 * 8);
  return list;
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

// Types whose values leave bytes undefined, which others than their like would see.
bool has_padding(BasicType type) {
  return type == BasicType::kLongDouble || type == BasicType::kComplexLongDouble || type == BasicType::kLongDoubleInt;
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
        for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{64}}) {
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
              if (op == ReduceOp::kNoOp && !fetch) continue;
              Bytes sent = origin;
              sent.resize(count * extent);
              const Agent::Answer answer = on.agent.execute(message_of(
                  on.header(), listed(accumulate(op, type, offset, static_cast<std::uint32_t>(count), fetch),
                                      op == ReduceOp::kNoOp ? Bytes{} : sent)));
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
      const auto message = [&](const Bytes& data) { return message_of(on.header(), listed(compare_and_swap(type, offset), data)); };
      Bytes payload = other;
      payload.insert(payload.end(), desired.begin(), desired.end());
      Agent::Answer answer = on.agent.execute(message(payload));
      REQUIRE(answer.header.status == ReplyStatus::kDone);
      CHECK(answer.fetched == there);
      CHECK(std::equal(there.begin(), there.end(), on.base() + offset));
      std::copy(there.begin(), there.end(), payload.begin());
      answer = on.agent.execute(message(payload));
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
      message_of(on.header(), listed(accumulate(ReduceOp::kMaxloc, BasicType::kDoubleInt, 32, 1), elements(BasicType::kDoubleInt, 1, 2))));
  CHECK(answer.header.status == ReplyStatus::kDone);
  CHECK(on.guards_hold());
}

TEST_CASE("a message shorter than its header is dropped") {
  Fixture on;
  const Bytes whole = message_of(on.header(), listed(put(0, 4), Bytes(4)));
  for (std::size_t bytes = 0; bytes < sizeof(RequestHeader); ++bytes) {
    check_refused(on, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)), false);
  }
}

TEST_CASE("data of a wrong length are refused, and so is an entry that is cut off") {
  Fixture on;
  const auto check_all = [&](const ListEntry& entry, std::size_t right) {
    for (std::size_t bytes = 0; bytes <= 64; bytes += 8) {
      if (bytes == right) continue;
      // What is left over is taken for the next entry, and is none.
      check_refused(on, message_of(on.header(), listed(entry, Bytes(bytes))));
    }
  };
  check_all(accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 3), 16);
  check_all(compare_and_swap(BasicType::kInt64, 0), 16);
  check_all(put(0, 24), 24);
  check_all(put(0, 3, 3, 8), 16);
  check_all(get(0, 24), 0);
  check_all(accumulate(ReduceOp::kNoOp, BasicType::kInt32, 0, 1), 0);
  const Bytes good = listed(put(0, 8), Bytes(8));
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
    check_refused(on, message_of(on.header(), Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes))));
  }
}

TEST_CASE("of a list of which one operation is refused none is carried out") {
  Fixture on;
  for (const ListEntry& bad : {put(on.bytes, 1), put(0, 0), get(on.bytes - 1, 2), accumulate(ReduceOp::kMaxloc, BasicType::kInt32, 0, 1)}) {
    Bytes list = listed(put(0, 8), Bytes(8, std::byte{1}));
    const Bytes behind = listed(bad, Bytes(bad.kind == OperationKind::kGet ? 0 : 8));
    list.insert(list.end(), behind.begin(), behind.end());
    check_refused(on, message_of(on.header(), list));
  }
}

TEST_CASE("an operation beyond its region is refused, overflow or not") {
  Fixture on;
  const std::uint64_t offsets[] = {kRegionBytes - 7, kRegionBytes, kRegionBytes + 1, UINT64_MAX, UINT64_MAX - 7,
                                   std::uint64_t{1} << 63, UINT64_MAX - kRegionBytes};
  for (const std::uint64_t offset : offsets) {
    INFO(offset);
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kSum, BasicType::kInt64, offset, 1), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, offset, 1))));
    check_refused(on, message_of(on.header(), listed(compare_and_swap(BasicType::kInt64, offset), Bytes(16))));
    check_refused(on, message_of(on.header(), listed(put(offset, 8), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(get(offset, 8))));
  }
  for (const std::uint32_t count : {0U, 513U, 865U, 1537U, 0x20000000U, 0x20000001U, 0x80000000U, UINT32_MAX}) {
    INFO(count);
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, count))));
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kSum, BasicType::kInt64, 0, count), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(compare_and_swap(BasicType::kInt64, 0, count), Bytes(16))));
  }
  // Blocks: the last one beyond, in front, far away; none; more than there can be.
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
  for (const ListEntry& bad : {get(0, 8, 3, kRegionBytes / 2), get(0, 8, 2, -8), get(16, 8, 4, -8), get(0, 8, 2, kFar), get(0, 8, 2, -kFar - 1),
                               get(0, 8, 1000, kFar), get(0, 8, 0, 8), get(0, 1, UINT32_MAX, 1), get(0, 8, UINT32_MAX, 0)}) {
    check_refused(on, message_of(on.header(), listed(bad)));
  }
  CHECK(on.agent.execute(message_of(on.header(), listed(get(kRegionBytes - 8, 8, 512, -8)))).refused == nullptr);
  CHECK(on.agent.execute(message_of(on.header(), listed(get(0, 8, 512, 8)))).refused == nullptr);
}

TEST_CASE("no request makes the agent answer with more than a message holds") {
  Fixture on(false, 16 * kMaxPayload);
  const auto most = static_cast<std::uint32_t>(OperationList::kMostFetched / 8);
  const auto fetch = [](std::uint32_t count) { return listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, count)); };
  CHECK(on.agent.execute(message_of(on.header(), fetch(most))).fetched.size() == OperationList::kMostFetched);
  check_refused(on, message_of(on.header(), fetch(most + 1)));
  check_refused(on, message_of(on.header(), fetch(16 * most)));
  Bytes several;
  for (int i = 0; i < 3; ++i) {
    const Bytes one = fetch(most / 2);
    several.insert(several.end(), one.begin(), one.end());
    if (i < 2) CHECK(on.agent.execute(message_of(on.header(), several)).refused == nullptr);
  }
  check_refused(on, message_of(on.header(), several));
}

TEST_CASE("unknown kinds, operations, types, regions and senders are refused") {
  Fixture on;
  const ListEntry good = accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 1);
  for (const std::size_t number : {kReduceOps, std::size_t{200}, std::size_t{255}}) {
    ListEntry bad = good;
    bad.op = static_cast<ReduceOp>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  for (const std::size_t number : {kBasicTypes, std::size_t{200}, std::size_t{255}}) {
    ListEntry bad = good;
    bad.type = static_cast<BasicType>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  for (const int number : {4, 200, 255}) {
    ListEntry bad = good;
    bad.kind = static_cast<OperationKind>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  // Puts and gets that say something else than they are.
  ListEntry fetching_put = put(0, 8), sending_get = get(0, 8), typed_put = put(0, 8), silent = good;
  fetching_put.fetch = 1;
  sending_get.op = ReduceOp::kReplace;
  typed_put.type = BasicType::kInt64;
  silent.op = ReduceOp::kNoOp;
  silent.fetch = 0;
  for (const ListEntry& bad : {fetching_put, sending_get, typed_put}) check_refused(on, message_of(on.header(), listed(bad, Bytes(8))));
  check_refused(on, message_of(on.header(), listed(silent)));
  const Bytes list = listed(good, Bytes(4));
  for (const std::uint32_t sender : {3U, 1000U, UINT32_MAX}) {
    RequestHeader bad = on.header();
    bad.sender = sender;
    check_refused(on, message_of(bad, list), false);
  }
  RequestHeader bad = on.header();
  bad.region = on.region + 1;
  check_refused(on, message_of(bad, list), false);
  bad.region = 0;
  check_refused(on, message_of(bad, list), false);
}

TEST_CASE("an operation that MPI does not define for the type is refused") {
  Fixture on;
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (allowed(op, type)) continue;
      INFO(traits(type).name << " " << name(op));
      check_refused(on, message_of(on.header(), listed(accumulate(op, type, 0, 1), Bytes(traits(type).extent))));
    }
    if (!has_gap(type)) continue;
    INFO(traits(type).name << " compare_and_swap");
    check_refused(on, message_of(on.header(), listed(compare_and_swap(type, 0), Bytes(2 * std::size_t{traits(type).extent}))));
  }
}

TEST_CASE("operations with a control step are carried out, then it is taken and fetches; or nothing is done") {
  Fixture on;
  const auto message = [&](std::uint64_t offset, std::size_t bytes, const ControlStep& step) {
    Bytes payload = bytes > 0 ? listed(put(offset, static_cast<std::uint32_t>(bytes)), Bytes(bytes, std::byte{0x21})) : Bytes();
    append(payload, step);
    RequestHeader header = on.header();
    header.controls = 1;
    return message_of(header, payload);
  };
  const auto add = [](std::uint32_t word) { return ControlStep{ControlCall::kFetchAdd, {}, word, 7, 0}; };
  std::uint64_t sum = 0;
  for (const std::size_t bytes : {0UL, 1UL, 13UL, kRegionBytes}) {
    std::fill_n(on.base(), on.bytes, kFilling);
    const std::uint64_t offset = (kRegionBytes - bytes) / 2;
    const Agent::Answer answer = on.agent.execute(message(offset, bytes, add(8 * 15)));
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
  check_refused(on, message(kRegionBytes, 1, add(0)));
  check_refused(on, message(UINT64_MAX, 8, add(0)));
  for (const std::uint32_t word : {1U, 124U, 128U, UINT32_MAX - 7}) {
    check_refused(on, message(0, 8, add(word)));
  }
  RequestHeader header = on.header();
  header.controls = 1;
  check_refused(on, message_of(header, Bytes(8)));
  CHECK(std::count(on.words.get(), on.words.get() + on.kWords, 0U) == 15);
}

TEST_CASE("between two steps operations are carried out, unless the first one stops them") {
  Fixture on;
  const auto message = [&](std::uint64_t offset, const ControlStep& opening, const ControlStep& closing) {
    Bytes payload = listed(put(offset, 8), Bytes(8, std::byte{0x21}));
    append(payload, opening);
    append(payload, closing);
    RequestHeader header = on.header();
    header.controls = 2;
    return message_of(header, payload);
  };
  const auto words_of = [](const Agent::Answer& answer) {
    std::vector<std::uint64_t> words(answer.fetched.size() / 8);
    std::memcpy(words.data(), answer.fetched.data(), words.size() * 8);
    return words;
  };
  const ControlStep draws{ControlCall::kFetchAdd, {}, 24, 0x101, 0xF0};
  const ControlStep leaves{ControlCall::kFetchAdd, {}, 24, 0x10, 0};
  const Agent::Answer done = on.agent.execute(message(16, draws, leaves));
  CHECK(done.header.status == ReplyStatus::kDone);
  CHECK(words_of(done) == std::vector<std::uint64_t>{0, 0x101});
  CHECK(on.words[3] == 0x111);
  CHECK(on.base()[16] == std::byte{0x21});
  // 0x10 is in the way now.
  const Agent::Answer stopped = on.agent.execute(message(32, draws, leaves));
  CHECK(stopped.refused == nullptr);
  CHECK(stopped.header.status == ReplyStatus::kStopped);
  CHECK(words_of(stopped) == std::vector<std::uint64_t>{0x111});
  CHECK(on.words[3] == 0x212);
  CHECK(on.base()[32] == kFilling);
  // Nothing at all is done of what is refused.
  std::fill_n(on.base(), on.bytes, kFilling);
  on.words[3] = 0;
  check_refused(on, message(kRegionBytes, draws, leaves));
  check_refused(on, message(0, {ControlCall::kFetchAdd, {}, 128, 1, 0}, leaves));
  check_refused(on, message(0, draws, {ControlCall::kFetchAdd, {}, 4, 1, 0}));
  for (const ControlCall call : {ControlCall::kRead, ControlCall::kWrite, ControlCall::kCompareAndSwap}) {
    check_refused(on, message(0, {call, {}, 24, 1, 0}, leaves));
  }
  RequestHeader header = on.header();
  header.controls = 2;
  Bytes one_only;
  append(one_only, draws);
  check_refused(on, message_of(header, one_only));
  header.controls = 3;
  check_refused(on, message_of(header, Bytes(3 * sizeof(ControlStep))));
  CHECK(on.words[3] == 0);
}

TEST_CASE("steps on control words do what they say and fetch what was there") {
  Fixture on;
  const auto take = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare) {
    RequestHeader header = on.header();
    header.controls = 1;
    Bytes payload;
    append(payload, ControlStep{call, {}, 24, operand, compare});
    const Agent::Answer answer = on.agent.execute(message_of(header, payload));
    std::uint64_t before = 0;
    REQUIRE(answer.fetched.size() == sizeof before);
    std::memcpy(&before, answer.fetched.data(), sizeof before);
    return before;
  };
  CHECK(take(ControlCall::kWrite, 5, 0) == 0);
  CHECK(take(ControlCall::kFetchAdd, UINT64_MAX, 0) == 5);
  CHECK(take(ControlCall::kCompareAndSwap, 9, 5) == 4);
  CHECK(take(ControlCall::kCompareAndSwap, 9, 4) == 4);
  CHECK(take(ControlCall::kRead, 77, 77) == 9);
  CHECK(on.words[3] == 9);
  RequestHeader header = on.header();
  header.controls = 1;
  Bytes payload;
  append(payload, ControlStep{static_cast<ControlCall>(4), {}, 24, 1, 0});
  check_refused(on, message_of(header, payload));
  CHECK(on.words[3] == 9);
}

TEST_CASE("what an origin lists is what the agent does, in order, and what is fetched comes to its buffers") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    Fixture on(below(2) == 0, 2 * kRegionBytes);
    Bytes model(on.base(), on.base() + on.bytes);
    OperationList list;
    struct Wanted {
      BasicType type;
      std::size_t count;
      Bytes fetched, buffer;
    };
    std::vector<std::unique_ptr<Wanted>> wanted;
    // Runs of a shape now and then, so that blocks come together; some of them overlap.
    DataOperation operation;
    std::ptrdiff_t stride = 0;
    std::size_t listed_operations = 0;
    for (std::size_t run = 0;; --run) {
      if (run == 0) {
        run = 1 + below(20);
        operation.kind = static_cast<OperationKind>(below(4));
        operation.type = BasicType::kByte;
        operation.op = operation.kind == OperationKind::kGet ? ReduceOp::kNoOp : ReduceOp::kReplace;
        operation.count = 1 + below(24);
        if (operation.atomic()) {
          do {
            operation.type = static_cast<BasicType>(below(kBasicTypes));
            operation.op = operation.kind == OperationKind::kAccumulate ? static_cast<ReduceOp>(below(kReduceOps)) : ReduceOp::kReplace;
          } while (has_padding(operation.type) || !allowed(operation.op, operation.type) || (operation.kind == OperationKind::kCompareAndSwap && has_gap(operation.type)));
          operation.count = operation.kind == OperationKind::kAccumulate ? 1 + below(5) : 1;
        }
        stride = static_cast<std::ptrdiff_t>(below(64)) - 16;
        operation.offset = 1024 + below(on.bytes - 4096);
      } else {
        operation.offset += static_cast<std::uint64_t>(stride);
      }
      const std::size_t bytes = operation.bytes();
      auto here = std::make_unique<Wanted>(Wanted{operation.type, operation.count, Bytes(bytes, kFilling), Bytes(bytes, kFilling)});
      const bool fetches = operation.kind == OperationKind::kGet || operation.kind == OperationKind::kCompareAndSwap ||
                           operation.op == ReduceOp::kNoOp || below(2) == 0;
      const bool can_fetch = fetches && operation.kind != OperationKind::kPut;
      operation.fetched = can_fetch ? here->buffer.data() : nullptr;
      Bytes origin(bytes), compare(bytes);
      fill_elements(operation.type, origin.data(), operation.count, static_cast<unsigned>(random()));
      std::copy_n(model.begin() + static_cast<std::ptrdiff_t>(operation.offset), bytes, compare.begin());
      if (below(2) == 0) compare[0] ^= std::byte{1};
      origin.resize(span_of(operation.type, operation.count));
      origin.shrink_to_fit();
      operation.origin = operation.op == ReduceOp::kNoOp ? nullptr : origin.data();
      operation.compare = compare.data();
      if (!list.add(operation)) break;
      ++listed_operations;
      std::byte* at = model.data() + operation.offset;
      switch (operation.kind) {
        case OperationKind::kPut: std::copy(origin.begin(), origin.end(), at); break;
        case OperationKind::kGet: std::copy_n(at, bytes, here->fetched.begin()); break;
        case OperationKind::kAccumulate:
          combine(AtomicWay::kLocked, operation.op, operation.type, at, operation.origin, can_fetch ? here->fetched.data() : nullptr,
                  operation.count);
          break;
        case OperationKind::kCompareAndSwap:
          farside::compare_and_swap(AtomicWay::kLocked, operation.type, at, origin.data(), compare.data(), here->fetched.data());
          break;
      }
      wanted.push_back(std::move(here));
    }
    CHECK(listed_operations > 10);
    const std::span<const std::byte> bytes = list.bytes();
    REQUIRE(bytes.size() <= OperationList::kMostBytes);
    const Agent::Answer answer = on.agent.execute(message_of(on.header(), Bytes(bytes.begin(), bytes.end())));
    REQUIRE(answer.refused == nullptr);
    REQUIRE(answer.fetched.size() == list.fetched_bytes());
    list.deliver(answer.fetched);
    for (const auto& one : wanted) {
      CHECK(same_elements(one->type, one->buffer.data(), one->fetched.data(), one->count));
      CHECK(gaps_hold(one->type, one->buffer.data(), one->count, kFilling));
    }
    REQUIRE(std::equal(model.begin(), model.end(), on.base()));
    REQUIRE(on.guards_hold());
  }
}

TEST_CASE("operations of one shape at equal distances take up no more than their data") {
  OperationList list;
  std::uint64_t word = 0;
  DataOperation operation{OperationKind::kPut, ReduceOp::kReplace, BasicType::kByte, 0, 8, &word, nullptr, nullptr};
  for (int i = 0; i < 512; ++i, operation.offset += 24) REQUIRE(list.add(operation));
  CHECK(list.bytes().size() == sizeof(ListEntry) + 8 * 512);
  operation.offset = 8;
  REQUIRE(list.add(operation));
  CHECK(list.bytes().size() == 2 * sizeof(ListEntry) + 8 * 513);
}

TEST_CASE("nobody may ask before admission or after withdrawal") {
  Fixture on;
  std::byte other[8] = {};
  const std::uint64_t unborn = on.agent.publish({other, sizeof other, &on.lock, false, {}});
  const Bytes list = listed(put(0, 4), Bytes(4));
  RequestHeader header = on.header();
  header.region = unborn;
  check_refused(on, message_of(header, list), false);
  header.sender = 0;
  check_refused(on, message_of(header, list), false);
  on.agent.withdraw(on.region);
  check_refused(on, message_of(on.header(), list), false);
  on.agent.withdraw(on.region);
  CHECK(on.region != unborn);
}

TEST_CASE("no mutation of a request makes the agent touch memory outside the region") {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  Fixture on;
  std::size_t done = 0, refused = 0;
  for (int round = 0; round < 60000; ++round) {
    Bytes payload;
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      ListEntry entry{static_cast<OperationKind>(below(4)), static_cast<ReduceOp>(below(kReduceOps)),
                      static_cast<BasicType>(below(kBasicTypes)), static_cast<std::uint8_t>(below(2)),
                      static_cast<std::uint32_t>(1 + below(20)), below(kRegionBytes),
                      static_cast<std::int64_t>(below(600)) - 300, static_cast<std::uint32_t>(1 + below(4)), 0};
      if (entry.kind == OperationKind::kPut) entry = put(entry.offset, entry.count, entry.blocks, entry.stride);
      if (entry.kind == OperationKind::kGet) entry = get(entry.offset, entry.count, entry.blocks, entry.stride);
      if (entry.kind == OperationKind::kCompareAndSwap) entry = compare_and_swap(entry.type, entry.offset);
      Bytes data(entry.data_bytes());
      for (std::byte& byte : data) byte = std::byte(random());
      const Bytes one = listed(entry, data);
      payload.insert(payload.end(), one.begin(), one.end());
    }
    RequestHeader header = on.header();
    header.controls = below(2) == 0 ? 1 : 0;
    if (header.controls != 0) append(payload, ControlStep{static_cast<ControlCall>(below(5)), {}, static_cast<std::uint32_t>(8 * below(Fixture::kWords + 2)), 1, 0});
    Bytes message = message_of(header, payload);
    // None, one or several mutations of bytes, but mostly not of the region's id; now and then of the length.
    for (std::size_t n = below(4); n > 0; --n) {
      std::size_t at = below(message.size());
      if (at >= 8 && at < 16 && below(16) != 0) at = 16 + below(message.size() - 16);
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
