// SPDX-License-Identifier: BSD-3-Clause
// Registered memory. That for small buffers does not grow with the number of operations that are under way. Operands
// that cannot be registered, because a process may lock no more memory (ENOMEM, RLIMIT_MEMLOCK), go through the slots
// of registered memory that there are, in parts, and their data are right.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/node/node_group.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::locked_memory_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kBytes = 3'000'008;  // of an operand: more than all slots of one registration have
constexpr std::size_t kWords = kBytes / 8;
constexpr std::size_t kRoom = kWords + 100;

std::vector<std::uint64_t> sequence(std::uint64_t first, std::size_t words = kWords) {
  std::vector<std::uint64_t> made(words);
  std::iota(made.begin(), made.end(), first);
  return made;
}

// A space of two ranks over the provider in memory. Both ranks are in this process: rank 0 is the origin, and rank 1
// has the data. The origin has the first slots, and has used the target. This thread alone takes completions of RDMA,
// so that slots and registrations stay in use until it waits for one.
struct Limited {
  static constexpr int kTarget = 1;
  static constexpr std::uint64_t kId = 0x5eed'0000'd00d;
  // From now on so many bytes may be registered.
  explicit Limited(std::size_t more, InfoHandle of_origin = fake_provider()) : origin({}, std::move(of_origin)) {
    FabricRoute::Agreed agreed;
    const std::vector<FabricAddress> addresses = {origin.fabric->address(), target.fabric->address()};
    agreed.addresses = PeerAddresses::share(*NodeGroup::alone(0), addresses, origin.progress);
    expose(own, {});
    expose(there, data);
    own.agree(agreed);
    there.agree(agreed);
    const std::uint64_t word = 1;
    REQUIRE((put(kRoom - 1, &word, sizeof word).ok() && flush().ok()));
    fake_queues();
    limit.emplace(more);
    reader.emplace();
  }
  Status put(std::size_t word, const void* from, std::size_t bytes) {
    return own.operate(kTarget, DataOperation::put(8 * word, from, bytes), nullptr);
  }
  Status get(std::size_t word, void* into, std::size_t bytes) {
    return own.operate(kTarget, DataOperation::get(8 * word, into, bytes), nullptr);
  }
  // A sum, which fetches the previous values unless `fetched` is null.
  Status add(std::size_t word, const std::uint64_t* operands, std::uint64_t* fetched, std::size_t count) {
    return own.operate(
        kTarget, DataOperation::accumulate(8 * word, ReduceOp::kSum, BasicType::kUint64, operands, fetched, count),
        nullptr);
  }
  Status flush() { return own.flush(kTarget); }
  bool has(std::size_t word, const std::vector<std::uint64_t>& values) const {
    return std::equal(values.begin(), values.end(), data.begin() + static_cast<std::ptrdiff_t>(word));
  }

  void expose(FabricRoute& route, std::span<std::uint64_t> words) {
    MessageHandler::ServedSpace space;
    space.base = reinterpret_cast<std::byte*>(words.data());
    space.bytes = words.size_bytes();
    space.lock = &lock;
    space.ranks = 2;
    space.control = control.data();
    space.control_bytes = control.size();
    REQUIRE(route.register_memory(space, words.size_bytes(), 1).ok());
  }

  FakeProcess origin, target;
  std::vector<std::uint64_t> data = std::vector<std::uint64_t>(kRoom);  // of the target
  alignas(64) std::array<std::byte, 4096> control{};
  AccumulateLockWord lock;
  WakeEvent wake_event;
  FabricRoute own{FabricRoute::Setup{*origin.fabric, *origin.fabric, wake_event, 0, kId}};
  FabricRoute there{FabricRoute::Setup{*target.fabric, *target.fabric, wake_event, 1, kId}};
  std::optional<FakeMemoryLimit> limit;
  std::optional<FakeReader> reader;
};

}  // namespace

TEST_CASE("operations of this process wait for slots, and answers do not") {
  const FabricDomain domain = std::move(FabricDomain::open(fake_provider(), 64).value());
  LocalMemory memory;
  memory.begin(domain.domain());
  std::vector<LocalMemory::Slot*> slots(LocalMemory::kMostOwn);
  for (LocalMemory::Slot*& slot : slots) REQUIRE(memory.take(true, slot) == 0);
  LocalMemory::Slot* more = nullptr;
  CHECK(memory.take(true, more) == -FI_EAGAIN);
  CHECK(more == nullptr);
  LocalMemory::Slot* answer = nullptr;
  CHECK(memory.take(false, answer) == 0);
  // The end of an answer makes no room for operations, the end of an operation does.
  memory.release(answer);
  CHECK(memory.take(true, more) == -FI_EAGAIN);
  memory.release(slots.back());
  CHECK(memory.take(true, more) == 0);

  // Large buffers.
  std::vector<char> buffer(64);
  std::vector<FabricHandle<fid_mr>> large(LocalMemory::kMostLarge);
  for (FabricHandle<fid_mr>& each : large) {
    REQUIRE(memory.begin_large());
    REQUIRE(memory.register_memory(buffer.data(), 64, FI_WRITE, each) == 0);
  }
  CHECK_FALSE(memory.begin_large());
  memory.end_large(large.front());
  CHECK(large.front() == nullptr);
  CHECK(memory.begin_large());
}

TEST_CASE("where no more memory can be registered, operations wait for slots, and leave some to answers") {
  const FabricDomain domain = std::move(FabricDomain::open(fake_provider(), 64).value());
  LocalMemory memory;
  memory.begin(domain.domain());
  LocalMemory::Slot* slot = nullptr;
  {
    const FakeMemoryLimit none(1);
    CHECK(memory.take(true, slot) == -FI_ENOMEM);
  }
  std::vector<LocalMemory::Slot*> own, answers;
  REQUIRE(memory.take(true, slot) == 0);
  own.push_back(slot);
  const FakeMemoryLimit none(1);
  int code = 0;
  for (; (code = memory.take(true, slot)) == 0;) own.push_back(slot);
  CHECK(code == -FI_EAGAIN);
  CHECK(own.size() > 32);
  for (; (code = memory.take(false, slot)) == 0;) answers.push_back(slot);
  CHECK(code == -FI_EAGAIN);
  CHECK(answers.size() == LocalMemory::kForAnswers);
  // The end of an answer makes room for an answer, and that of an operation for either.
  memory.release(answers.back());
  CHECK(memory.take(true, slot) == -FI_EAGAIN);
  CHECK(memory.take(false, slot) == 0);
  for (LocalMemory::Slot* const each : answers) memory.release(each);
  memory.release(own.back());
  CHECK(memory.take(true, slot) == 0);
  CHECK(memory.take(true, slot) == -FI_EAGAIN);
}

TEST_CASE("large puts and gets whose operands cannot be registered go through slots, and their data are right") {
  // None can be registered, or only the first one.
  const std::size_t more = GENERATE(std::size_t{1}, kBytes + 8);
  CAPTURE(more);
  Limited space(more);
  const auto one = sequence(1'000'000), two = sequence(2'000'000);
  CHECK(space.put(0, one.data(), kBytes).ok());
  CHECK(space.put(0, two.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(space.has(0, two));
  CHECK(fake_queues().refused_memory > 0);
  std::vector<std::uint64_t> first(kWords), second(kWords);
  CHECK(space.get(0, first.data(), kBytes).ok());
  CHECK(space.get(0, second.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK((first == two && second == two));
  CHECK(fake_queues().refused_memory > 0);
  // When there is room again, operands are registered.
  space.limit.reset();
  CHECK((space.put(0, one.data(), kBytes).ok() && space.flush().ok()));
  CHECK(space.has(0, one));
  const FakeQueues counted = fake_queues();
  CHECK((counted.refused_memory == 0 && counted.writes == 1));
}

TEST_CASE("the parts of an operand are registered as long as that is possible, and then go through slots") {
  constexpr std::size_t kPart = kBytes / 3 + 8;
  Limited space(kPart + 1000, fake_provider(kPart));
  const auto values = sequence(5);
  std::vector<std::uint64_t> fetched(kWords);
  CHECK(space.put(0, values.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(space.has(0, values));
  CHECK(fake_queues().refused_memory > 0);
  CHECK(space.get(0, fetched.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(fetched == values);
  CHECK(fake_queues().refused_memory > 0);
}

TEST_CASE("large accumulates need no registration of their operands, and work where none is possible") {
  constexpr std::size_t kCount = 100'000;
  Limited space(1);
  const auto operands = sequence(7, kCount);
  std::vector<std::uint64_t> fetched(kCount), expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) expected[i] = 2 * operands[i];
  CHECK(space.add(0, operands.data(), nullptr, kCount).ok());
  CHECK(space.add(0, operands.data(), fetched.data(), kCount).ok());
  CHECK(space.flush().ok());
  CHECK(fetched == operands);
  CHECK(space.has(0, expected));
}

}  // namespace farside::locked_memory_test
