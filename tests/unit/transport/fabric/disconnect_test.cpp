// SPDX-License-Identifier: BSD-3-Clause
// DISCONNECT: which ends of connections are interruptions, by which notifications may be lost.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "tests/unit/transport/fabric/opened_connections.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::disconnect_test {

using namespace farside::testing;

namespace {

using Clock = std::chrono::steady_clock;

// Only a failure takes so long.
template <class Condition>
bool soon(Condition&& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end; std::this_thread::yield()) {
    if (condition()) return true;
  }
  return false;
}

// A process with a word that others write.
struct Evictable {
  NoProgress progress;
  Statistics statistics;
  std::unique_ptr<Fabric> fabric;
  std::uint64_t word = 0;
  std::optional<Endpoint::Registration> registration;

  explicit Evictable(InfoHandle provider, const Settings& settings = {})
      : fabric(std::move(Fabric::open(std::move(provider), settings, progress, statistics).value())),
        registration(std::move(fabric->register_memory(&word, sizeof word, 1).value())) {}
  ~Evictable() {
    registration.reset();
    fabric.reset();
  }
  Peer knows(const Evictable& other) const { return fabric->insert(other.fabric->address()); }
  bool write_to(const Evictable& other, std::uint64_t value) {
    Pending pending;
    const bool issued = fabric->write(pending, {knows(other), other.registration->key, 0}, &value, sizeof value).ok();
    for (; !pending.done(); std::this_thread::yield()) fabric->poll();
    return issued && pending.take_error().ok() && other.word == value;
  }
};

}  // namespace

TEST_CASE("a connection that ends without DISCONNECT is interrupted, on the side that has not ended it") {
  Evictable one(fake_provider());
  auto other = std::make_unique<Evictable>(fake_provider());
  CHECK(other->write_to(one, 1));
  const Peer peer = one.knows(*other);
  CHECK(one.fabric->interruptions() == 0);
  other.reset();
  CHECK(soon([&] { return one.fabric->interruptions() != 0; }));
  CHECK(one.fabric->interruptions() == 1);
  CHECK(one.fabric->losses(peer).last_interruption == 1);
}

// The process that evicts finds the end of the connection when the other one has received DISCONNECT.
TEST_CASE("the end of a connection behind DISCONNECT interrupts neither side") {
  Settings settings;
  settings.connections = 1;
  Evictable evicts(fake_provider(), settings), used(fake_provider()), evicted(fake_provider());
  CHECK(evicts.write_to(used, 1));
  CHECK(evicted.write_to(evicts, 1));
  (void)fake_queues();
  {
    // If the connection is evicted before, the test shows less.
    const FakeReader reader(FakeReader::Of::kEverything);
    std::size_t messages = 0;
    CHECK(soon([&] {
      for (const Evictable* each : {&used, &evicted}) each->fabric->poll();
      return (messages += fake_queues().messages) >= 1;
    }));
    for (int polls = 0; polls < 100; ++polls) evicted.fabric->poll();
  }
  // Each has seen the end before it connects again.
  CHECK(evicts.write_to(evicted, 2));
  CHECK(evicted.write_to(evicts, 3));
  for (const Evictable* each : {&evicts, &used, &evicted}) CHECK(each->fabric->interruptions() == 0);
}

TEST_CASE("a connection that ends before the peer's DISCONNECT has come is interrupted, whatever was sent on it") {
  Settings settings;
  settings.connections = 1;
  Evictable evicts(fake_provider(), settings);
  auto one = std::make_unique<Evictable>(fake_provider());
  auto other = std::make_unique<Evictable>(fake_provider());
  CHECK(evicts.write_to(*one, 1));
  CHECK(other->write_to(evicts, 1));
  (void)fake_queues();
  {
    // The peers do not read the DISCONNECT that one of them gets, and end without one of their own.
    const FakeReader reader(FakeReader::Of::kEverything);
    std::size_t messages = 0;
    CHECK(soon([&] {
      evicts.fabric->poll();
      return (messages += fake_queues().messages) >= 1;
    }));
    std::thread([&] {
      one.reset();
      other.reset();
    }).join();
  }
  CHECK(soon([&] { return evicts.fabric->interruptions() >= 2; }));
}

// Both ends of each connection are sockets of this process.
TEST_CASE("eviction over tcp interrupts nothing, and neither does a process that ends") {
  const auto tcp = [] { return std::move(find_provider("tcp").value()); };
  for (const bool evicts : {true, false}) {
    Settings settings;
    settings.connections = evicts ? 1 : 0;
    Evictable one(tcp(), settings), two(tcp());
    for (std::uint64_t round = 1; round <= 5; ++round) {
      INFO("evicts: " << evicts << ", round " << round);
      CHECK(one.write_to(two, round));
      const std::size_t before = open_sockets();
      auto third = std::make_unique<Evictable>(tcp());
      const std::size_t with_third = open_sockets();
      CHECK(third->write_to(one, round));
      if (evicts) {
        CHECK(soon([&] { return open_sockets() <= with_third; }));
        CHECK(one.write_to(two, 10 + round));
        CHECK(third->write_to(one, 10 + round));
        CHECK(third->fabric->interruptions() == 0);
      }
      third.reset();
      CHECK(soon([&] { return open_sockets() <= before; }));
      CHECK(one.fabric->interruptions() == 0);
      CHECK(two.fabric->interruptions() == 0);
    }
  }
}

}  // namespace farside::disconnect_test
