// SPDX-License-Identifier: BSD-3-Clause
// The biased mutex: real threads, and all interleavings of a model of the steps in biased_mutex.hpp.
#include "transport/base/biased_mutex.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/global_membarrier.hpp"

using namespace farside;

namespace {

// Waits until the thread sleeps on a futex, without a limit of time. Returns false if it does not: only a failure takes
// so long.
bool sleeps(const std::atomic<pid_t>& thread) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::seconds(10); Clock::now() < end; std::this_thread::yield()) {
    if (thread == 0) continue;
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");  // proc(5)
    long number = -1;
    std::string word, operation, value, limit;
    if (file >> number >> word >> operation >> value >> limit && number == SYS_futex && limit == "0x0") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("one thread keeps the bias, and a second one ends it") {
  REQUIRE(supports_process_membarrier());
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

TEST_CASE("a thread that waits sleeps until it is woken, whatever it waits for") {
  REQUIRE(supports_process_membarrier());
  BiasedMutex mutex;
  int entered = 0;
  const auto enter = [&](std::atomic<pid_t>& thread) {
    thread = gettid();
    const std::scoped_lock held(mutex);
    ++entered;
  };
  std::atomic<pid_t> first = 0, second = 0;
  mutex.lock();
  CHECK(mutex.biased());
  std::thread revokes(enter, std::ref(first));  // waits for the owner
  CHECK(sleeps(first));
  std::thread follows(enter, std::ref(second));  // waits for the end of the bias
  CHECK(sleeps(second));
  mutex.unlock();
  revokes.join();
  follows.join();
  CHECK(entered == 2);

  std::atomic<pid_t> third = 0;
  mutex.lock();
  CHECK_FALSE(mutex.biased());
  std::thread shares(enter, std::ref(third));
  CHECK(sleeps(third));
  mutex.unlock();
  shares.join();
  CHECK(entered == 3);
}

TEST_CASE("an owner that comes while another thread ends its bias is woken, and so is the other") {
  REQUIRE(supports_process_membarrier());
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    BiasedMutex mutex;
    std::atomic<bool> over = false;
    const auto pass = [&] { const std::scoped_lock held(mutex); };
    pass();
    std::thread other([&] {
      pass();
      over = true;
    });
    while (!over) pass();
    other.join();
    CHECK_FALSE(mutex.biased());
  }
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

TEST_CASE("after a visit the owner takes the bias back, and after another thread that stays it does not") {
  REQUIRE(supports_process_membarrier());
  const auto visit = [](BiasedMutex& mutex) {
    std::thread([&mutex] {
      BiasedMutex::only_visits();
      const std::scoped_lock held(mutex);
    }).join();
  };
  const auto pass = [](BiasedMutex& mutex, int times) {
    for (int i = 0; i < times; ++i) const std::scoped_lock held(mutex);
  };
  BiasedMutex mutex, visited_first;
  pass(mutex, 1);
  for (int visits = 0; visits < 2; ++visits) {
    visit(mutex);
    CHECK_FALSE(mutex.biased());
    pass(mutex, BiasedMutex::kBackAfter - 1);
    CHECK_FALSE(mutex.biased());
    pass(mutex, 1);
    CHECK(mutex.biased());
    pass(mutex, 3);
    CHECK(mutex.biased());
  }
  // A visitor never becomes the owner.
  visit(visited_first);
  pass(visited_first, BiasedMutex::kBackAfter);
  CHECK(visited_first.biased());
  std::thread([&] { pass(mutex, 1); }).join();
  pass(mutex, 2 * BiasedMutex::kBackAfter);
  CHECK_FALSE(mutex.biased());
}

TEST_CASE("an owner and threads that visit exclude each other") {
  constexpr int kVisitors = 2, kVisits = 300;
  BiasedMutex mutex;
  std::int64_t count = 0, mine = 0;
  std::atomic<int> visiting = kVisitors;
  const auto add = [&] {
    const std::scoped_lock held(mutex);
    ++count;
  };
  add();
  std::vector<std::thread> visitors;
  for (int i = 0; i < kVisitors; ++i) {
    visitors.emplace_back([&] {
      BiasedMutex::only_visits();
      for (int visit = 0; visit < kVisits; ++visit) {
        add();
        std::this_thread::yield();
      }
      --visiting;
    });
  }
  for (; visiting > 0; ++mine) add();
  for (std::thread& each : visitors) each.join();
  CHECK(count == 1 + mine + kVisitors * kVisits);
}

// ---- the model ------------------------------------------------------------------------------------------------------
// The owner enters its section three times, the other thread twice. The owner's stores wait in a buffer, and reach
// memory in their order at any later time. Whenever it has `shared`, it may take the bias back or not. The other thread
// sleeps if it finds the owner inside.
namespace {

struct Model {
  bool barrier = true;
  bool waits = true;        // for `inside`
  bool reads_again = true;  // the mode, when it has `shared`
  bool wakes = true;        // when the owner leaves and reads kRevoking

  enum Mode : std::uint8_t { kBiased, kRevoking, kShared };
  enum Word : std::uint8_t { kInside, kMode, kSharedWord };
  struct Store {
    Word word = kInside;
    std::uint8_t value = 0;
    auto operator<=>(const Store&) const = default;
  };
  // The steps of the owner.
  enum Owner : std::uint8_t { kComes, kReads, kTurnsBack, kWaits, kLocks, kInAsOwner, kLeaves, kInShared };
  // The steps of the other thread.
  enum Other : std::uint8_t { kLooks, kBarrier, kAwaits, kSleeps, kShares, kTakes, kIn };
  static constexpr int kOwnerTimes = 3, kOtherTimes = 2;

  struct State {
    Owner owner = kComes;
    Other other = kLooks;
    std::uint8_t owner_times = 0, other_times = 0;
    std::array<std::uint8_t, 3> memory{};
    std::uint8_t buffered = 0;
    std::array<Store, 8> stores{};  // of the owner, oldest first
    auto operator<=>(const State&) const = default;
  };

  std::set<State> seen;
  bool both = false;
  bool ends = false;   // both have come as often as they shall
  bool stuck = false;  // in some state no thread can go on

  static void store(State& s, Word word, std::uint8_t value) { s.stores[s.buffered++] = {word, value}; }
  static void drain_one(State& s) {
    s.memory[s.stores[0].word] = s.stores[0].value;
    for (std::size_t i = 1; i < s.stores.size(); ++i) s.stores[i - 1] = s.stores[i];
    s.stores.back() = {};
    --s.buffered;
  }
  static void drain(State& s) {
    while (s.buffered > 0) drain_one(s);
  }
  // What the owner reads: its own last store, if that is in the buffer.
  static std::uint8_t read(const State& s, Word word) {
    for (std::size_t i = s.buffered; i > 0; --i) {
      if (s.stores[i - 1].word == word) return s.stores[i - 1].value;
    }
    return s.memory[word];
  }

  void visit(const State& s) {
    if (!seen.insert(s).second) return;
    both = both || ((s.owner == kInAsOwner || s.owner == kInShared) && s.other == kIn);
    std::vector<State> next;
    if (s.buffered > 0) {
      next.push_back(s);
      drain_one(next.back());
    }
    if (s.owner_times < kOwnerTimes) owner_steps(s, next);
    if (s.other_times < kOtherTimes) next.push_back(other_step(s));
    const bool over = s.owner_times == kOwnerTimes && s.other_times == kOtherTimes;
    ends = ends || over;
    stuck = stuck || (!over && std::ranges::all_of(next, [&](const State& each) { return each == s; }));
    for (const State& each : next) visit(each);
  }
  void wake_if_revoking(State& s) const {
    if (!wakes || read(s, kMode) != kRevoking) return;
    drain(s);
    if (s.other == kSleeps) s.other = kAwaits;
  }
  void owner_steps(State s, std::vector<State>& next) const {
    switch (s.owner) {
      case kComes:
        store(s, kInside, 1);
        s.owner = kReads;
        break;
      case kReads:
        if (read(s, kMode) == kBiased) {
          s.owner = kInAsOwner;
        } else {
          store(s, kInside, 0);
          s.owner = kTurnsBack;
        }
        break;
      case kTurnsBack:
        wake_if_revoking(s);
        s.owner = kWaits;
        break;
      case kWaits:
        if (read(s, kMode) != kRevoking) s.owner = kLocks;
        break;
      case kLocks:
        drain(s);
        if (s.memory[kSharedWord] != 0) break;
        s.memory[kSharedWord] = 1;
        s.owner = kInShared;
        next.push_back(s);
        store(s, kInside, 1);
        store(s, kMode, kBiased);
        store(s, kSharedWord, 0);
        s.owner = kInAsOwner;
        break;
      case kInAsOwner:
        store(s, kInside, 0);
        s.owner = kLeaves;
        break;
      case kLeaves:
        wake_if_revoking(s);
        s.owner = kComes;
        ++s.owner_times;
        break;
      case kInShared:
        store(s, kSharedWord, 0);
        s.owner = kComes;
        ++s.owner_times;
    }
    next.push_back(s);
  }
  State other_step(State s) const {
    switch (s.other) {
      case kLooks:
        if (s.memory[kMode] == kBiased) s.memory[kMode] = kRevoking;
        s.other = s.memory[kMode] == kRevoking ? kBarrier : kTakes;
        break;
      case kBarrier:
        if (barrier) drain(s);
        s.other = kAwaits;
        break;
      case kAwaits: s.other = !waits || s.memory[kInside] == 0 ? kShares : kSleeps; break;
      case kSleeps: break;
      case kShares:
        s.memory[kMode] = kShared;
        s.other = kTakes;
        break;
      case kTakes:
        if (s.memory[kSharedWord] != 0) break;
        s.memory[kSharedWord] = 1;
        s.other = kIn;
        if (reads_again && s.memory[kMode] != kShared) {
          s.memory[kSharedWord] = 0;
          s.other = kLooks;
        }
        break;
      case kIn:
        s.memory[kSharedWord] = 0;
        s.other = kLooks;
        ++s.other_times;
    }
    return s;
  }
};

struct Found {
  bool excludes, goes_on;
};
// All interleavings, without one of the rules.
Found explore(bool Model::*without = nullptr) {
  Model model;
  if (without != nullptr) model.*without = false;
  model.visit({});
  CHECK(model.ends);
  return {!model.both, !model.stuck};
}

}  // namespace

TEST_CASE("in no interleaving the owner and the other thread are in their sections at once, or sleep for ever") {
  const Found with_all = explore();
  CHECK(with_all.excludes);
  CHECK(with_all.goes_on);
  CHECK_FALSE(explore(&Model::barrier).excludes);
  CHECK_FALSE(explore(&Model::barrier).goes_on);
  CHECK_FALSE(explore(&Model::waits).excludes);
  CHECK_FALSE(explore(&Model::reads_again).excludes);
  CHECK_FALSE(explore(&Model::wakes).goes_on);
}
