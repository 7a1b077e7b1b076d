// SPDX-License-Identifier: BSD-3-Clause
// The endpoint of a process as a whole (fake_process.hpp): peers that are independent, lost or out of reach, and
// atomics of an adapter.
#include "transport/fabric/fabric.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/fabric/silent_listener.hpp"

namespace farside::fabric_test {

using namespace farside::testing;
using namespace std::chrono_literals;

using Clock = std::chrono::steady_clock;

TEST_CASE("a thread issues to its peer while the provider delays an operation of another thread to another peer") {
  constexpr std::uint64_t kPuts = 100;
  const Exposed slow, other(2);
  FakeProcess origin;
  const Endpoint::Place slow_place = slow.place_for(origin), other_place = other.place_for(origin);
  const std::uint64_t one = 1;
  Pending to_slow, to_other;
  REQUIRE(origin.put(slow_place, one));
  // Something is under way towards the other peer all the time, so that it stays active.
  FakeHold hold(&slow.words[0], &other.words[1]);
  REQUIRE(origin.fabric->write(to_other, other.place_for(origin, 1), &one, sizeof one).ok());

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
  CHECK(soon([&] { return issued == kPuts; }));
  CHECK(slow.words[0] == 1);
  hold.end();
  delayed.join();
  independent.join();
  CHECK(good);
  CHECK((origin.complete(to_slow) && origin.complete(to_other)));
  CHECK((slow.words[0] == 2 && other.words[0] == kPuts && other.words[1] == 1));
}

TEST_CASE("a connection that ends without DISCONNECT is interrupted, on the side that has not ended it") {
  const Exposed one;
  auto other = std::make_unique<FakeProcess>();
  CHECK(other->put(one.place_for(*other), 1));
  const Peer peer = one.fabric->insert(other->fabric->address());
  CHECK(one.fabric->interruptions() == 0);
  other.reset();
  CHECK(soon([&] { return one.fabric->interruptions() != 0; }));
  CHECK(one.fabric->interruptions() == 1);
  CHECK(one.fabric->losses(peer).last_interruption == 1);
}

// Both ends of each connection are sockets of this process.
TEST_CASE("eviction over tcp interrupts nothing, and neither does a process that ends") {
  const auto writes = [](const FakeProcess& from, const Exposed& to, std::uint64_t value) {
    return from.put(to.place_for(from), value) && to.words[0] == value;
  };
  for (const bool evicts : {true, false}) {
    Settings settings;
    settings.connections = evicts ? 1 : 0;
    const Exposed one(1, settings, tcp_provider()), two(1, {}, tcp_provider());
    for (std::uint64_t round = 1; round <= 5; ++round) {
      INFO("evicts: " << evicts << ", round " << round);
      CHECK(writes(one, two, round));
      const std::size_t before = open_sockets();
      auto third = std::make_unique<FakeProcess>(Settings{}, tcp_provider());
      const std::size_t with_third = open_sockets();
      CHECK(writes(*third, one, round));
      if (evicts) {
        CHECK(soon([&] { return open_sockets() <= with_third; }));
        CHECK(writes(one, two, 10 + round));
        CHECK(writes(*third, one, 10 + round));
        CHECK(third->fabric->interruptions() == 0);
      }
      third.reset();
      CHECK(soon([&] { return open_sockets() <= before; }));
      CHECK(one.fabric->interruptions() == 0);
      CHECK(two.fabric->interruptions() == 0);
    }
  }
}

TEST_CASE("atomics of an adapter are right, in whichever form it takes operands") {
  const FakeAtomics form{GENERATE(false, true), false, false};
  CAPTURE(form.by_value);
  Exposed target(1, {}, fake_provider(1 << 20, &form));
  const FakeProcess origin({}, fake_provider(1 << 20, &form));
  REQUIRE(origin.fabric->nic_atomics());
  target.words[0] = 0x1122334455667788;
  const Endpoint::Place place = target.place_for(origin);
  const auto take = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare) {
    Pending pending;
    std::uint64_t fetched = 0;
    CHECK(origin.fabric->control(pending, place, {call, {}, 0, operand, compare}, &fetched));
    CHECK(origin.complete(pending));
    return fetched;
  };
  CHECK(take(ControlCall::kFetchAdd, 5, 0) == 0x1122334455667788);
  CHECK(take(ControlCall::kCompareAndSwap, 7, 1) == 0x112233445566778d);
  CHECK(take(ControlCall::kCompareAndSwap, 7, 0x112233445566778d) == 0x112233445566778d);
  // A read is RDMA.
  CHECK(take(ControlCall::kRead, 1, 0) == 7);
  CHECK(target.words[0] == 7);
}

TEST_CASE("atomics of an adapter that have wrong results are not used") {
  const bool swaps_result = GENERATE(false, true);
  const FakeAtomics form{false, swaps_result, !swaps_result};
  CHECK_FALSE(FakeProcess({}, fake_provider(1 << 20, &form)).fabric->nic_atomics());
}

// Nothing arrives that would wake the progress thread, which alone notices.
TEST_CASE("a peer is abandoned in time if the progress thread was asleep when its first operation began") {
  Settings settings;
  settings.peer_timeout = 1;
  FakeProcess process(settings, tcp_provider());
  const SilentListener nobody;
  const Peer peer = process.fabric->insert(nobody.address());
  std::this_thread::sleep_for(1s);
  const auto begin = Clock::now();
  const std::uint64_t word = 7;
  Pending pending;
  WakeEvent wake_event;
  const Status issued = process.fabric->write(pending, {peer, {}, 0}, &word, sizeof word);
  for (Waiter waiter(process.progress, wake_event); !pending.done();) waiter.pause();
  CHECK_FALSE((issued.ok() && pending.take_error().ok()));
  CHECK((Clock::now() - begin > 900ms && Clock::now() - begin < 4s));
}

// The host of a stopped process accepts connections until its backlog is full; one that has vanished accepts none.
TEST_CASE("a peer whose host accepts each request to connect is not out of reach") {
  Settings settings;
  settings.peer_timeout = 1;
  FakeProcess process(settings, tcp_provider());
  const SilentListener stopped, full(0);
  const Peer lives = process.fabric->insert(stopped.address()), vanishes = process.fabric->insert(full.address());
  const auto begin = Clock::now();
  Result<bool> reached = true;
  for (; reached && Clock::now() - begin < 4s; std::this_thread::yield()) {
    const Result<bool> other = process.fabric->reach(lives);
    CHECK((other && !other.value()));
    reached = process.fabric->reach(vanishes);
  }
  REQUIRE_FALSE(reached);
  INFO(reached.error().text);
  CHECK(Clock::now() - begin >= 1s);
}

}  // namespace farside::fabric_test
