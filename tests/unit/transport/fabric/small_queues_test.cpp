// SPDX-License-Identifier: BSD-3-Clause
// Over an adapter whose queues are no longer than farside asks for, nothing overruns: the limits of messages.hpp and
// operation.hpp hold, and the thread that is refused makes room.
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"

namespace farside::small_queues_test {

using namespace farside::testing;

namespace {

constexpr std::uint64_t kRegion = 0x5eed;
constexpr std::uint32_t kOrigins = 16;

// The process to which all others issue: a sum, and a word for each of them.
struct Target : Exposed {
  AccumulateLockWord lock;

  Target() : Exposed(1 + kOrigins) {
    MessageHandler::ServedSpace space;
    space.base = reinterpret_cast<std::byte*>(words.data());
    space.bytes = 8 * words.size();
    space.lock = &lock;
    space.ranks = kOrigins;
    REQUIRE(fabric->publish(kRegion, space));
  }
};

// One of the others. The results of its calls are in `good`, since Catch's checks belong to one thread.
struct Origin : FakeProcess {
  const std::uint32_t rank;
  const Endpoint::Place place;  // of its word
  bool good = true;
  Pending pending;

  Origin(std::uint32_t number, const Target& to) : rank(number), place(to.place_for(*this, 1 + number)) {}
  void add(std::uint64_t value, int times) {
    auto list = std::make_unique<OperationList>();
    for (int i = 0; i < times; ++i) {
      good = good && list->add(DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kUint64, &value, nullptr, 1));
    }
    const HandlerRequest request = HandlerRequest::operations().to(kRegion, static_cast<int>(rank));
    good = fabric->request(pending, place.peer, request, std::move(list)).ok() && good;
  }
  void put(std::uint64_t value) { good = fabric->write(pending, place, &value, sizeof value).ok() && good; }
  void flush() { good = complete(pending) && good; }
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
          for (int i = 0; i < kPuts; ++i) each.put(static_cast<std::uint64_t>(round * kPuts + i));
          each.flush();
        }
      });
    }
    for (std::thread& each : threads) each.join();
    for (const Origin& each : origins) {
      CHECK(each.good);
      CHECK(target.words[1 + each.rank] == std::uint64_t{kRounds * kPuts - 1});
    }
    constexpr std::uint64_t kAll = kOrigins * (kOrigins + 1) / 2;
    CHECK(target.words[0] == kAll * kRounds * kMessages * kInMessage);
  }
  const FakeQueues counted = fake_queues();
  CHECK(counted.overruns == 0);
  CHECK(counted.not_ready == 0);
  CHECK(counted.messages >= 2 * kOrigins * kRounds * kMessages);
}

TEST_CASE("more writes than a completion queue holds are issued by a thread that makes the room itself") {
  constexpr std::uint64_t kPuts = 10'000;
  fake_queues();
  {
    Target target;
    Origin origin(0, target);
    origin.put(0);
    origin.flush();
    fake_queues();
    // Nobody else polls (FakeProcess). The progress thread backs off meanwhile, but on a busy machine it may be faster.
    bool makes_room = false;
    for (int tries = 0; tries < 100 && !makes_room; ++tries) {
      for (std::uint64_t i = 0; i < kPuts; ++i) origin.put(i);
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
