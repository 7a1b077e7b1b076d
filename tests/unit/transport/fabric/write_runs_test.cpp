// SPDX-License-Identifier: BSD-3-Clause
// Small writes in runs over an adapter: what they ask of the provider, and that each ends once, whatever happens to the
// run that it is part of. What is known without a provider is in operations_in_flight_test.cpp.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/counted_calls.hpp"
#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "tests/unit/transport/fabric/fake_space.hpp"

namespace farside::write_runs_test {

using namespace farside::testing;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongest = OperationsInFlight::kLongestRun;
constexpr std::size_t kWords = 1000;

struct Target {
  FakeProcess process;
  std::array<std::uint64_t, kWords> words{};
  Endpoint::Registration registration =
      std::move(process.fabric->register_memory(words.data(), sizeof words, 0).value());

  explicit Target(const Settings& settings = {}) : process(settings) {}
};

// A process that writes to one other.
struct Origin {
  FakeProcess process;
  Peer peer = 0;
  RemoteKey key;
  Pending pending;

  explicit Origin(const Target& target, const Settings& settings = {}) : process(settings) { reach(target); }
  // Connects, and waits for the first write.
  void reach(const Target& target) {
    peer = process.fabric->insert(target.process.fabric->address());
    key = target.registration.key;
    REQUIRE(put(0, 0));
    REQUIRE(flush());
  }
  bool put(std::size_t word, std::uint64_t value, Pending& among) {
    return process.fabric->write_in_run(among, {peer, key, 8 * word}, &value, sizeof value).ok();
  }
  bool put(std::size_t word, std::uint64_t value) { return put(word, value, pending); }
  // Writes value + i to word i.
  bool puts(std::size_t words, std::uint64_t value) {
    bool good = true;
    for (std::size_t i = 0; i < words; ++i) good = put(i, value + i) && good;
    return good;
  }
  bool flush() { return process.flush(pending, peer); }
};

bool has(const Target& target, std::size_t words, std::uint64_t value) {
  for (std::size_t i = 0; i < words; ++i) {
    if (target.words[i] != value + i) return false;
  }
  return true;
}

// Only a failure takes so long.
template <class Condition>
bool soon(Condition&& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end; std::this_thread::yield()) {
    if (condition()) return true;
  }
  return false;
}

// What `act` asks of the provider, while the progress thread ends no run: that comes when one stays open for 250 ms.
template <class Act>
FakeQueues counted_by(Act&& act) {
  while (true) {
    fake_queues();
    const Clock::time_point begun = Clock::now();
    act();
    const FakeQueues counted = fake_queues();
    if (Clock::now() - begun < std::chrono::milliseconds(200)) return counted;
  }
}

}  // namespace

TEST_CASE("a run of small writes asks for one completion, and so does a flush") {
  const std::size_t puts = GENERATE(1, 31, 32, 33, 64, 1000);
  const std::size_t runs = (puts + kLongest - 1) / kLongest;
  CAPTURE(puts);
  Target target;
  Origin origin(target);
  std::uint64_t value = 0;
  const auto epoch = [&] {
    value += 10'000;
    CHECK(origin.puts(puts, value));
    CHECK(origin.flush());
    CHECK(has(target, puts, value));
  };
  // The first flush comes as a surprise, after one with a single write.
  const FakeQueues first = counted_by([&] {
    CHECK(origin.put(0, 1));
    CHECK(origin.flush());
    epoch();
  });
  CHECK(first.writes <= 1 + puts + 1);
  CHECK(first.empty_writes <= 1);
  CHECK(first.reported <= 1 + runs + 1);
  const FakeQueues later = counted_by(epoch);
  CHECK(later.writes == puts);
  CHECK(later.empty_writes == 0);
  CHECK(later.silent_writes == puts - runs);
  CHECK(later.reported == runs);
  CHECK(later.signalled == puts);
  CHECK(later.overruns == 0);
}

TEST_CASE("the small puts of a space of the domain nic, and their flush, cost one completion per run") {
  const std::size_t puts = GENERATE(1, 32, 33, 1000);
  const std::size_t runs = (puts + kLongest - 1) / kLongest;
  CAPTURE(puts);
  FakeSpace space(kWords, true);
  std::uint64_t value = 0;
  const auto epoch = [&] {
    value += 10'000;
    for (std::size_t i = 0; i < puts; ++i) {
      const std::uint64_t word = value + i;
      CHECK(space.put(i, &word, sizeof word).ok());
    }
    CHECK(space.flush().ok());
    CHECK((space.data[0] == value && space.data[puts - 1] == value + puts - 1));
  };
  epoch();
  const FakeQueues counted = counted_by(epoch);
  CHECK(counted.writes == puts);
  CHECK(counted.silent_writes == puts - runs);
  CHECK(counted.empty_writes == 0);
  CHECK(counted.reported == runs);
  CHECK(counted.messages == 0);
}

TEST_CASE("a small write takes no mutex of the library, reads no clock, and copies nothing") {
  Target target;
  Origin origin(target);
  // Afterwards this thread has the mutex of the peer for itself.
  for (int times = 0; times < 2 * Timing::kInARow; ++times) REQUIRE(origin.put(0, 0));
  CHECK(origin.flush());
  take_counted_calls(fake_mutex());
  CHECK(origin.puts(64, 5));
  const CountedCalls counted = take_counted_calls();
  CHECK(counted.locks == 0);
  CHECK(counted.clocks == 0);
  const std::uint64_t operand = 7;
  fake_queues();
  CHECK(origin.process.fabric->write_in_run(origin.pending, {origin.peer, origin.key, 0}, &operand, 8).ok());
  CHECK(fake_queues().last_from == &operand);
  CHECK(origin.flush());
  CHECK(target.words[0] == 7);
}

TEST_CASE("a write that is too large to be copied, and one of another flush, ask for completions of their own") {
  Target target;
  Origin origin(target);
  Pending another;
  // A run is open.
  CHECK((origin.puts(3, 1) && origin.flush() && origin.puts(2, 5)));
  fake_queues();
  CHECK(origin.put(7, 70, another));
  CHECK(fake_queues().silent_writes == 0);
  // Its completion also tells the end of the run.
  CHECK(origin.process.complete(another));
  CHECK(origin.pending.done());
  const std::vector<std::uint64_t> large(64, 9);
  CHECK(origin.put(0, 1));
  CHECK(origin.process.fabric->write_in_run(another, {origin.peer, origin.key, 800}, large.data(), 512).ok());
  CHECK(origin.process.complete(another));
  CHECK(origin.pending.done());
  CHECK((target.words[7] == 70 && target.words[0] == 1 && target.words[100] == 9 && target.words[163] == 9));
}

TEST_CASE("a read tells the end of the run before it") {
  Target target;
  Origin origin(target);
  Pending reads;
  std::uint64_t word = 0;
  CHECK((origin.puts(5, 1) && origin.flush() && origin.puts(3, 40)));
  CHECK_FALSE(origin.pending.done());
  CHECK(origin.process.fabric->read(reads, {origin.peer, origin.key, 16}, &word, sizeof word).ok());
  CHECK(origin.process.complete(reads));
  CHECK(word == 42);
  CHECK(origin.pending.done());
}

TEST_CASE("a write of a run that fails is an error of the flush, once, and the next ones arrive") {
  // The failing write of 40, of which the 32nd ends a run; of the last ones the flush asks for the end.
  const std::size_t failing = GENERATE(0, 5, 31, 32, 39, 40);
  CAPTURE(failing);
  Target target;
  Origin origin(target);
  origin.pending.towards(3);
  CHECK((origin.puts(50, 0) && origin.flush()));
  fake_failure(failing);
  (void)origin.puts(40, 1000);
  while (!origin.pending.done()) {
    origin.process.fabric->end_run(origin.pending, origin.peer);
    origin.process.fabric->progress().poll();
  }
  const Status failed = origin.pending.take_error();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().kind == ErrorKind::kPeer);
  CHECK(failed.error().rank == 3);
  CHECK(origin.pending.count() == 0);
  CHECK((origin.puts(40, 2000) && origin.flush()));
  CHECK(has(target, 40, 2000));
}

TEST_CASE(
    "an error of a run, or of an operation of another counter that ends it, is one of both, and of no third one") {
  const std::size_t failing = GENERATE(0, 2, 3);  // a write of the run, or the operation behind it
  CAPTURE(failing);
  Target target;
  Origin origin(target);
  Pending ending, third;
  CHECK(origin.put(0, 1, third));
  CHECK(origin.process.flush(third, origin.peer));
  CHECK((origin.puts(10, 0) && origin.flush()));
  fake_failure(failing);
  CHECK(origin.puts(3, 1000));
  CHECK(origin.put(7, 1007, ending));
  CHECK_FALSE(origin.process.complete(ending));
  CHECK(origin.pending.done());
  CHECK_FALSE(origin.pending.take_error());
  CHECK_FALSE(third.has_error());
  // All three go on, over another connection.
  CHECK((origin.put(20, 5, third) && origin.process.flush(third, origin.peer)));
  CHECK((origin.put(21, 6, ending) && origin.process.flush(ending, origin.peer)));
  CHECK((origin.puts(10, 2000) && origin.flush()));
  CHECK((has(target, 10, 2000) && target.words[20] == 5 && target.words[21] == 6));
}

TEST_CASE("writes of a run that the provider refuses are repeated, and so is the end of the run") {
  Target target;
  Origin origin(target);
  CHECK((origin.puts(50, 0) && origin.flush()));
  for (std::size_t i = 0; i < 40; ++i) {
    fake_refusal(i % 4 * 50);
    CHECK(origin.put(i, 300 + i));
  }
  fake_refusal(5);
  CHECK(origin.flush());
  CHECK(has(target, 40, 300));
  CHECK(origin.pending.count() == 0);
}

TEST_CASE("the writes of an open run fail when the connection ends") {
  auto target = std::make_unique<Target>();
  Origin origin(*target);
  CHECK((origin.puts(5, 0) && origin.flush() && origin.puts(3, 10)));
  CHECK_FALSE(origin.pending.done());
  target.reset();
  // Nothing is asked for, nor is anything issued.
  CHECK(soon([&] {
    origin.process.fabric->progress().poll();
    return origin.pending.done();
  }));
  CHECK_FALSE(origin.pending.take_error());
  CHECK(origin.pending.take_error());
}

TEST_CASE("a run that stays open is ended by the progress thread") {
  Target target;
  Origin origin(target);
  CHECK((origin.puts(5, 0) && origin.flush() && origin.puts(3, 10)));
  CHECK_FALSE(origin.pending.done());
  CHECK(soon([&] { return origin.pending.done(); }));
  CHECK(origin.pending.take_error().ok());
  CHECK(has(target, 3, 10));
  CHECK((origin.puts(40, 500) && origin.flush() && has(target, 40, 500)));
}

TEST_CASE("an eviction ends the open run of its connection, on either side, and does not wait for a check") {
  // The limit of connections is that of the target, which asks the origin to close the connection, or of the origin.
  const bool of_target = GENERATE(true, false);
  CAPTURE(of_target);
  constexpr std::chrono::milliseconds kUnused{100};
  Settings one;
  one.connections = 1;
  const auto ends_early = [&] {
    Target target(of_target ? one : Settings());
    Target another;
    Origin origin(target, of_target ? Settings() : one);
    CHECK((origin.puts(5, 0) && origin.flush()));
    for (const auto end = Clock::now() + kUnused; Clock::now() < end;) std::this_thread::yield();
    const Clock::time_point begun = Clock::now();
    CHECK(origin.puts(3, 10));
    CHECK_FALSE(origin.pending.done());
    FakeProcess third;
    FakeProcess& writer = of_target ? third : origin.process;
    const Target& written = of_target ? target : another;
    Pending pending;
    const std::uint64_t word = 77;
    const Peer peer = writer.fabric->insert(written.process.fabric->address());
    CHECK(writer.fabric->write(pending, {peer, written.registration.key, 80}, &word, sizeof word).ok());
    CHECK(writer.complete(pending));
    CHECK(soon([&] { return origin.pending.done(); }));
    const bool early = Clock::now() - begun < Timing::kSafetyNet;  // a check ends no run so early
    CHECK(origin.pending.take_error().ok());
    CHECK((has(target, 3, 10) && written.words[10] == 77));
    CHECK((origin.puts(40, 500) && origin.flush() && has(target, 40, 500)));
    return early;
  };
  // On a busy machine one may come late.
  CHECK((ends_early() || ends_early() || ends_early()));
}

TEST_CASE("threads with one counter share runs, and none waits for a run that another has begun meanwhile") {
  constexpr std::size_t kThreads = 2, kRounds = 300, kPuts = 50;
  Target target;
  Origin origin(target);
  std::atomic<bool> good{true};
  std::atomic<std::size_t> waiting{0};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t round = 1; round <= kRounds; ++round) {
        for (std::size_t i = 0; i < round % kPuts; ++i) good = origin.put(thread * kPuts + i, 1000 * round + i) && good;
        // Each thread leaves a run open while it waits for the other one, which flushes.
        if (round % kThreads == thread) good = origin.flush() && good;
        ++waiting;
        while (waiting < kThreads * round) std::this_thread::yield();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(origin.flush());
  CHECK(good);
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    CHECK(target.words[thread * kPuts] == 1000 * (kRounds - 1));
  }
}

TEST_CASE("two counters alternate on one connection, and each flush completes its own") {
  Target target;
  Origin origin(target);
  Pending another;
  for (std::size_t i = 0; i < 100; ++i) {
    CHECK(origin.put(i, 100 + i));
    CHECK(origin.put(100 + i, 200 + i, another));
    if (i % 7 == 0) CHECK(origin.process.flush(another, origin.peer));
    if (i % 11 == 0) CHECK(origin.flush());
  }
  CHECK((origin.flush() && origin.process.flush(another, origin.peer)));
  CHECK(has(target, 200, 100));
}

}  // namespace farside::write_runs_test
