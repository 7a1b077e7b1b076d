// SPDX-License-Identifier: BSD-3-Clause
// The biased mutex: real threads, and all interleavings of a model of the steps in biased_mutex.hpp.
#include "transport/base/biased_mutex.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/global_membarrier.hpp"

using namespace farside;

TEST_CASE("one thread keeps the bias, and a second one ends it") {
  REQUIRE(supports_global_membarrier());
  BiasedMutex mutex;
  const auto pass = [&] { const std::scoped_lock held(mutex); };
  for (int times = 0; times < 3; ++times) pass();
  CHECK(mutex.biased());
  std::thread(pass).join();
  CHECK_FALSE(mutex.biased());
  pass();
  CHECK_FALSE(mutex.biased());
}

TEST_CASE("a second thread waits until the owner has left its section") {
  BiasedMutex mutex;
  std::atomic<bool> entered = false;
  mutex.lock();
  std::thread other([&] {
    const std::scoped_lock held(mutex);
    entered = true;
  });
  while (mutex.biased()) std::this_thread::yield();  // the other one is coming
  for (int times = 0; times < 1000; ++times) std::this_thread::yield();
  CHECK_FALSE(entered);
  mutex.unlock();
  other.join();
  CHECK(entered);
}

TEST_CASE("threads exclude each other, whenever the second one comes") {
  constexpr int kThreads = 4, kTimes = 2000, kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    BiasedMutex mutex;
    std::int64_t count = 0;
    const auto add = [&] {
      for (int times = 0; times < kTimes; ++times) {
        const std::scoped_lock held(mutex);
        ++count;
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(add);
    for (std::thread& thread : threads) thread.join();
    REQUIRE(count == std::int64_t{kThreads} * kTimes);
  }
}

// ---- the model ------------------------------------------------------------------------------------------------------
// The owner enters its section twice, the other thread once. The owner's stores wait in a buffer, and reach memory in
// their order at any later time.
namespace {

struct Model {
  bool barrier = true;
  bool waits = true;  // for `inside`

  struct State {
    std::uint8_t owner = 0, other = 0;  // the next step of each
    bool inside = false, revoked = false;
    std::uint8_t buffered = 0;          // stores of the owner's buffer
    std::array<bool, 4> stores{};       // of `inside`, oldest first
    bool owner_in = false, other_in = false;
    auto operator<=>(const State&) const = default;
  };

  std::set<State> seen;
  bool both = false;

  static void store(State& s, bool inside) { s.stores[s.buffered++] = inside; }
  static void drain_one(State& s) {
    s.inside = s.stores[0];
    for (std::size_t i = 1; i < s.stores.size(); ++i) s.stores[i - 1] = s.stores[i];
    s.stores.back() = false;
    --s.buffered;
  }

  void visit(State s) {
    if (!seen.insert(s).second) return;
    both = both || (s.owner_in && s.other_in);
    if (s.buffered > 0) {
      State next = s;
      drain_one(next);
      visit(next);
    }
    if (s.owner < 6) visit(owner_step(s));
    if (s.other < 5) visit(other_step(s));
  }
  // Two rounds of: a, b with c, d.
  static State owner_step(State s) {
    switch (s.owner % 3) {
      case 0: store(s, true); break;
      case 1:
        s.owner_in = !s.revoked;
        if (s.revoked) {  // it leaves, and waits for the other one as after kShared
          store(s, false);
          s.owner = 6;
          return s;
        }
        break;
      default:
        s.owner_in = false;
        store(s, false);
    }
    ++s.owner;
    return s;
  }
  State other_step(State s) const {
    switch (s.other) {
      case 0: s.revoked = true; break;
      case 1:
        while (barrier && s.buffered > 0) drain_one(s);
        break;
      case 2:
        if (waits && s.inside) return s;  // it reads again
        break;
      case 3: s.other_in = true; break;
      default: s.other_in = false;
    }
    ++s.other;
    return s;
  }
};

bool excludes(bool barrier, bool waits) {
  Model model;
  model.barrier = barrier;
  model.waits = waits;
  model.visit({});
  return !model.both;
}

}  // namespace

TEST_CASE("in no interleaving the owner and the other thread are in their sections at once") {
  CHECK(excludes(true, true));
  CHECK_FALSE(excludes(false, true));
  CHECK_FALSE(excludes(true, false));
}
