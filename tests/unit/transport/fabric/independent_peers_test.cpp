// SPDX-License-Identifier: BSD-3-Clause
// Threads that issue operations to different peers share no mutex: one that the provider delays delays no other.
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/fabric/fake_provider.hpp"

namespace farside::independent_peers_test {

using namespace farside::testing;

namespace {

// A process whose memory others access.
struct Exposed {
  FakeProcess process;
  std::array<std::uint64_t, 2> words{};
  Endpoint::Registration registration =
      std::move(process.fabric->register_memory(words.data(), sizeof words, 0).value());
};

}  // namespace

TEST_CASE("a thread issues to its peer while the provider delays an operation of another thread to another peer") {
  constexpr std::uint64_t kPuts = 100;
  Exposed slow, other;
  FakeProcess origin;
  const auto place_in = [&](const Exposed& peer, std::size_t word) {
    return Endpoint::Place{origin.fabric->insert(peer.process.fabric->address()), peer.registration.key, 8 * word};
  };
  const Endpoint::Place slow_place = place_in(slow, 0), other_place = place_in(other, 0);
  const std::uint64_t one = 1;
  Pending to_slow, to_other;
  REQUIRE(origin.fabric->write(to_slow, slow_place, &one, sizeof one).ok());
  REQUIRE(origin.complete(to_slow));
  // Something is under way towards the other peer all the time, so that it stays active.
  FakeHold hold(&slow.words[0], &other.words[1]);
  REQUIRE(origin.fabric->write(to_other, place_in(other, 1), &one, sizeof one).ok());

  std::atomic<bool> good{true};
  std::thread delayed([&] {
    const std::uint64_t two = 2;
    if (!origin.fabric->write(to_slow, slow_place, &two, sizeof two).ok()) good = false;
  });
  hold.wait_for_call();
  std::atomic<std::uint64_t> issued{0};
  std::thread independent([&] {
    for (std::uint64_t i = 1; i <= kPuts; ++i) {
      if (!origin.fabric->write(to_other, other_place, &i, sizeof i).ok()) good = false;
      issued = i;
    }
  });
  // Only a failure takes so long.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
       issued < kPuts && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
  CHECK(issued == kPuts);
  CHECK(slow.words[0] == 1);
  hold.end();
  delayed.join();
  independent.join();
  CHECK(good);
  CHECK((origin.complete(to_slow) && origin.complete(to_other)));
  CHECK((slow.words[0] == 2 && other.words[0] == kPuts && other.words[1] == 1));
}

TEST_CASE("a request that waits for an accumulate lock holds up later ones of its sender, and of nobody else") {
  constexpr std::uint64_t kSpace = 0x5eed;
  constexpr int kOthers = 50, kBehind = 3;
  FakeProcess target;
  std::array<std::int64_t, 2> words{};
  AccumulateLockWord lock;
  MessageHandler::ServedSpace space;
  space.base = reinterpret_cast<std::byte*>(words.data());
  space.bytes = sizeof words;
  space.lock = &lock;
  space.ranks = 2;
  REQUIRE(target.fabric->publish(kSpace, space));
  struct Origin {
    FakeProcess process;
    Pending pending;
  };
  std::array<Origin, 2> origins;
  const auto add = [&](std::uint32_t rank, std::uint64_t offset, BasicType type, const void* operand) {
    auto list = std::make_unique<OperationList>();
    REQUIRE(list->add(DataOperation::accumulate(offset, ReduceOp::kSum, type, operand, nullptr, 1)));
    const Peer peer = origins[rank].process.fabric->insert(target.fabric->address());
    const HandlerRequest request = HandlerRequest::operations().to(kSpace, static_cast<int>(rank));
    REQUIRE(origins[rank].process.fabric->request(origins[rank].pending, peer, request, std::move(list)).ok());
  };
  const auto word = [&](std::size_t index) { return std::atomic_ref(words[index]).load(); };
  const double half = 0.5;
  const std::int64_t one = 1;
  {
    const AccumulateLock stopped(lock);  // of a process that is stopped
    add(0, 0, BasicType::kDouble, &half);
    for (int i = 0; i < kOthers; ++i) {
      if (i < kBehind) add(0, 8, BasicType::kInt64, &one);
      add(1, 8, BasicType::kInt64, &one);
      CHECK(origins[1].process.complete(origins[1].pending));
    }
    CHECK(word(0) == 0);
    CHECK(word(1) == kOthers);
    CHECK_FALSE(origins[0].pending.done());
  }
  CHECK(origins[0].process.complete(origins[0].pending));
  CHECK(word(0) == std::bit_cast<std::int64_t>(half));
  CHECK(word(1) == kOthers + kBehind);
  target.fabric->withdraw(kSpace);
}

}  // namespace farside::independent_peers_test
