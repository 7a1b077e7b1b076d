// SPDX-License-Identifier: BSD-3-Clause
// Over an adapter whose queues are no longer than farside asks for, nothing overruns: the limits of queue_limits.hpp
// and local_memory.hpp hold, and the thread that is refused makes room.
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/fabric/fake_provider.hpp"

namespace farside::small_queues_test {

using namespace farside::testing;

namespace {

constexpr std::uint64_t kRegion = 0x5eed;
constexpr std::uint32_t kOrigins = 16;

// The process to which all others issue: a sum, and a word for each of them.
struct Target {
  FakeProcess process;
  std::array<std::int64_t, 1 + kOrigins> words{};
  AccumulateLockWord lock;
  Endpoint::Registration registration;

  Target() {
    MessageHandler::ServedSpace space;
    space.base = reinterpret_cast<std::byte*>(words.data());
    space.bytes = sizeof words;
    space.lock = &lock;
    space.ranks = kOrigins;
    REQUIRE(process.fabric->publish(kRegion, space));
    registration = std::move(process.fabric->register_memory(words.data(), sizeof words, 0).value());
  }
};

// One of the others. The results of its calls are in `good`, since Catch's checks belong to one thread.
struct Origin {
  FakeProcess process;
  std::uint32_t rank;
  Peer target;
  bool good = true;
  Pending pending;

  Origin(std::uint32_t number, const Target& to) : rank(number) {
    target = process.fabric->insert(to.process.fabric->address());
  }
  void add(std::int64_t value, int times) {
    auto list = std::make_unique<OperationList>();
    for (int i = 0; i < times; ++i) {
      good = good && list->add(DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, &value, nullptr, 1));
    }
    const HandlerRequest request = HandlerRequest::operations().to(kRegion, static_cast<int>(rank));
    good = process.fabric->request(pending, target, request, std::move(list)).ok() && good;
  }
  void put(const Target& to, std::int64_t value) {
    const Endpoint::Place place{target, to.registration.key, 8 * (1 + std::uint64_t{rank})};
    good = process.fabric->write(pending, place, &value, sizeof value).ok() && good;
  }
  void flush() { good = process.complete(pending) && good; }
};

}  // namespace

TEST_CASE("16 processes issue a million operations to one, and no queue overruns") {
  constexpr int kRounds = 25, kMessages = 50, kInMessage = 40, kPuts = 500;  // of each process
  static_assert(kOrigins * kRounds * (kMessages * kInMessage + kPuts) == 1'000'000);
  fake_queues();
  {
    Target target;
    std::deque<Origin> origins;
    for (std::uint32_t i = 0; i < kOrigins; ++i) origins.emplace_back(i, target);
    std::vector<std::thread> threads;
    for (Origin& each : origins) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          for (int i = 0; i < kMessages; ++i) each.add(1 + each.rank, kInMessage);
          for (int i = 0; i < kPuts; ++i) each.put(target, round * kPuts + i);
          each.flush();
        }
      });
    }
    for (std::thread& each : threads) each.join();
    for (const Origin& each : origins) {
      CHECK(each.good);
      CHECK(target.words[1 + each.rank] == kRounds * kPuts - 1);
    }
    constexpr std::int64_t kAll = kOrigins * (kOrigins + 1) / 2;
    CHECK(target.words[0] == kAll * kRounds * kMessages * kInMessage);
  }
  const FakeQueues counted = fake_queues();
  CHECK(counted.overruns == 0);
  CHECK(counted.not_ready == 0);
  CHECK(counted.messages >= 2 * kOrigins * kRounds * kMessages);
}

TEST_CASE("more writes than a completion queue holds are issued by a thread that makes the room itself") {
  constexpr int kPuts = 10'000;
  fake_queues();
  {
    Target target;
    Origin origin(0, target);
    origin.put(target, -1);
    origin.flush();
    fake_queues();
    // Nobody else polls (FakeProcess). The progress thread backs off meanwhile, but on a busy machine it may be faster.
    bool makes_room = false;
    for (int tries = 0; tries < 100 && !makes_room; ++tries) {
      for (int i = 0; i < kPuts; ++i) origin.put(target, i);
      const FakeQueues counted = fake_queues();
      makes_room = counted.readers.contains(std::this_thread::get_id());
      CHECK(counted.overruns == 0);
    }
    CHECK(makes_room);
    origin.flush();
    CHECK(origin.good);
    CHECK(target.words[1] == kPuts - 1);
  }
  CHECK(fake_queues().overruns == 0);
}

}  // namespace farside::small_queues_test
