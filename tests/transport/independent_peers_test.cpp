// SPDX-License-Identifier: BSD-3-Clause
// Threads that issue operations to different peers share no mutex: one that the provider delays delays no other.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/transport/fake_process.hpp"
#include "tests/transport/fake_provider.hpp"

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

}  // namespace farside::independent_peers_test
