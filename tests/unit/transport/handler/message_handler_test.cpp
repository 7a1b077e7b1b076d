// SPDX-License-Identifier: BSD-3-Clause
// The active-message handler executes every kind of request as the kernels do.
#include "transport/handler/message_handler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "tests/unit/transport/data/elements.hpp"
#include "tests/unit/transport/handler/handler_fixture.hpp"
#include "transport/base/pause.hpp"
#include "transport/base/timing.hpp"
#include "transport/handler/message.hpp"

namespace farside::message_handler_test {

using namespace farside::testing;

TEST_CASE("of a request that finds the accumulate lock held nothing is executed, and it is claimed") {
  HandlerFixture on(false);
  std::fill_n(on.base(), on.bytes, std::byte{0});
  const double one = 1;
  const std::uint8_t byte = 1;
  OperationList list;
  REQUIRE(list.add(DataOperation::put(64, &byte, 1)));
  REQUIRE(list.add(DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kDouble, &one, nullptr, 1)));
  const Bytes request = message_of(on.header(), Bytes(list.bytes().begin(), list.bytes().end()));
  {
    const AccumulateLock held(on.lock);
    const MessageHandler::Answer answer = on.handler.execute(request);
    CHECK((answer.deferred && answer.known_sender && answer.refused == nullptr));
    CHECK(on.base()[64] == std::byte{0});
    // Atomics need no lock, unless their address is odd.
    const auto add = [&](std::uint64_t offset) {
      const Bytes sent = elements(BasicType::kInt64, 1, 1);
      return on.handler.execute(
          message_of(on.header(), listed(accumulate(ReduceOp::kSum, BasicType::kInt64, offset, 1), sent)));
    };
    CHECK_FALSE(add(8).deferred);
    CHECK(add(17).deferred);
  }
  CHECK(on.lock.state.load() == AccumulateLockWord::kReserved);
  const MessageHandler::Answer answer = on.handler.execute(request, {}, std::chrono::microseconds(0));
  CHECK((!answer.deferred && answer.refused == nullptr));
  CHECK(on.base()[64] == std::byte{1});
  CHECK(std::memcmp(on.base(), &one, sizeof one) == 0);
  CHECK(on.lock.state.load() == AccumulateLockWord::kFree);
}

TEST_CASE("a process that ends while it holds the accumulate lock keeps it from others for a second at most") {
  void* const memory =
      mmap(nullptr, sizeof(AccumulateLockWord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  for (const bool handles : {true, false}) {
    auto& lock = *new (memory) AccumulateLockWord;
    const pid_t child = fork();
    if (child == 0) {
      AccumulateLockWord::held_here += AccumulateLockWord::kProcess * static_cast<std::uint32_t>(getpid());
      (void)new AccumulateLock(lock);
      _exit(0);
    }
    CHECK(waitpid(child, nullptr, 0) == child);
    CHECK(lock.state.load() / AccumulateLockWord::kProcess == static_cast<std::uint32_t>(child));
    const auto begin = std::chrono::steady_clock::now();
    // A handler tries again and again, and does not wait.
    bool held = false;
    while (handles && !held && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
      held = AccumulateLock(lock, std::chrono::seconds(0)).held();
      std::this_thread::sleep_for(Timing::kTryAgain);
    }
    if (!handles) held = AccumulateLock(lock).held();
    CHECK(held);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    CHECK(lock.state.load() == AccumulateLockWord::kFree);
  }
  munmap(memory, sizeof(AccumulateLockWord));
}

TEST_CASE("beside a thread that takes the accumulate lock in a loop a handler waits for one holder") {
  AccumulateLockWord lock;
  std::uint64_t rows = 0;
  std::atomic<std::uint64_t> begun{0};
  std::atomic<bool> stop{false};
  std::thread combines([&] {
    while (!stop) {
      const AccumulateLock held(lock);
      begun = ++rows;
      for (int i = 0; i < 1000; ++i) relax();
    }
  });
  while (begun == 0) std::this_thread::yield();
  // This thread may lose its core before it claims the lock.
  std::uint64_t fewest = ~std::uint64_t{0};
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = begun;
    const AccumulateLock held(lock, std::chrono::seconds(20));
    REQUIRE(held.held());
    fewest = std::min(fewest, rows - before);
  }
  CHECK(fewest <= 1);
  // One that claims the lock and never takes it, as its process has ended, costs the others one wait.
  lock.claimed = 1;
  const std::uint64_t before = begun;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       begun < before + 100 && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
  CHECK(begun >= before + 100);
  stop = true;
  combines.join();
}

#ifndef __SANITIZE_THREAD__  // its atomics hold a lock of its own during the access that fails
TEST_CASE("memory that cannot be accessed is an error of the request, whose last control step is executed") {
  constexpr std::size_t kPage = 4096;
  auto* const memory =
      static_cast<std::byte*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(munmap(memory + kPage, kPage) == 0);
  IntegerWords words;
  IntegerMethod integers;
  integers.announce_in(words);
  integers.allow_lock({reinterpret_cast<std::byte*>(&words), sizeof words, 1}, false);
  AccumulateLockWord lock;
  std::uint64_t control = 0;
  MessageHandler::ServedSpace space;
  space.base = memory;
  space.bytes = 3 * kPage;
  space.lock = &lock;
  space.integers = &integers;
  space.ranks = 3;
  space.control = reinterpret_cast<std::byte*>(&control);
  space.control_bytes = sizeof control;
  MessageHandler handler;
  REQUIRE(handler.publish(77, space));
  const std::array<std::int64_t, 2> ones{1, 1};
  std::array<std::int64_t, 2> fetched{};
  const DataOperation operations[] = {
      DataOperation::put(kPage - 8, ones.data(), 16), DataOperation::get(kPage - 8, fetched.data(), 16),
      DataOperation::accumulate(kPage + 8, ReduceOp::kSum, BasicType::kInt64, ones.data(), nullptr, 1),
      DataOperation::accumulate(kPage - 8, ReduceOp::kSum, BasicType::kDouble, ones.data(), fetched.data(), 2),
      DataOperation::compare_and_swap(2 * kPage - 8, BasicType::kInt64, ones.data(), ones.data(), fetched.data())};
  std::uint64_t steps = 0;
  for (const DataOperation& operation : operations) {
    OperationList list;
    REQUIRE(list.add(DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, ones.data(), nullptr, 1)));
    REQUIRE(list.add(operation));
    Bytes payload(list.bytes().begin(), list.bytes().end());
    append(payload, ControlStep{ControlCall::kFetchAdd, {}, 0, 1, 0});
    RequestHeader header{MessageKind::kOperations, 1, 0, 1, kOrigin, 77, 0, 0, 5, 42};
    const MessageHandler::Answer answer = handler.execute(message_of(header, payload));
    CHECK(answer.refused != nullptr);
    CHECK(answer.header.status == ReplyStatus::kInaccessible);
    CHECK(answer.fault >= memory + kPage);
    CHECK(answer.fault < memory + 2 * kPage);
    CHECK(answer.fetched.empty());
    CHECK(control == ++steps);
    CHECK(lock.state.load() == AccumulateLockWord::kFree);
    CHECK(words.by_slot[kOwnSlots].announced == 0);
  }
  std::int64_t first = 0;
  std::memcpy(&first, memory, sizeof first);
  CHECK(first == 5);
  munmap(memory, 3 * kPage);
}
#endif

TEST_CASE("what an origin lists is what the handler does, in order, and what is fetched comes to its buffers") {
  for (const std::uint32_t seed : many_seeds(200)) {
    INFO(named(seed));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    HandlerFixture on(below(2) == 0, 2 * kSpaceBytes);
    Bytes model(on.base(), on.base() + on.bytes);
    OperationList list;
    struct Wanted {
      BasicType type;
      std::size_t count;
      Bytes fetched, buffer;
    };
    std::vector<std::unique_ptr<Wanted>> wanted;
    // Some operations repeat a shape, so that they become blocks of one entry; some of these blocks overlap.
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
            operation.op = operation.kind == OperationKind::kAccumulate ? static_cast<ReduceOp>(below(kReduceOps))
                                                                        : ReduceOp::kReplace;
          } while (has_padding(operation.type) || !allowed(operation.op, operation.type) ||
                   (operation.kind == OperationKind::kCompareAndSwap && has_gap(operation.type)));
          operation.count = operation.kind == OperationKind::kAccumulate ? 1 + below(5) : 1;
        }
        stride = static_cast<std::ptrdiff_t>(below(64)) - 16;
        operation.offset = 1024 + below(on.bytes - 4096);
      } else {
        operation.offset += static_cast<std::uint64_t>(stride);
      }
      const std::size_t bytes = operation.bytes();
      auto here = std::make_unique<Wanted>(
          Wanted{operation.type, operation.count, Bytes(bytes, kFilling), Bytes(bytes, kFilling)});
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
          combine(AtomicMethod::kLocked, operation.op, operation.type, at, operation.origin,
                  can_fetch ? here->fetched.data() : nullptr, operation.count);
          break;
        case OperationKind::kCompareAndSwap:
          farside::compare_and_swap(AtomicMethod::kLocked, operation.type, at, origin.data(), compare.data(),
                                    here->fetched.data());
          break;
      }
      wanted.push_back(std::move(here));
    }
    CHECK(listed_operations > 10);
    const std::span<const std::byte> bytes = list.bytes();
    REQUIRE(bytes.size() <= OperationList::kMostBytes);
    const MessageHandler::Answer answer =
        on.handler.execute(message_of(on.header(), Bytes(bytes.begin(), bytes.end())));
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
  DataOperation operation = DataOperation::put(0, &word, 8);
  for (int i = 0; i < 512; ++i, operation.offset += 24) REQUIRE(list.add(operation));
  CHECK(list.bytes().size() == sizeof(ListEntry) + 8 * 512);
  operation.offset = 8;
  REQUIRE(list.add(operation));
  CHECK(list.bytes().size() == 2 * sizeof(ListEntry) + 8 * 513);
}

}  // namespace farside::message_handler_test
