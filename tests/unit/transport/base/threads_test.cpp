// SPDX-License-Identifier: BSD-3-Clause
// Numbers of threads, the small mutex, and the biased one: real threads, and all interleavings of a model of its steps.
#include "transport/base/threads.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
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

namespace farside::threads_test {

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

// The numbers of so many threads that live at the same time.
std::vector<int> numbers_of(std::size_t count) {
  std::vector<int> numbers(count);
  std::barrier all(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (int& number : numbers) {
    threads.emplace_back([&] {
      number = ThreadSlot::get();
      all.arrive_and_wait();
      if (ThreadSlot::get() != number) number = -1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

TEST_CASE("threads that live at the same time have different numbers, and those beyond the last have a common one") {
  // The calling thread has one of the numbers.
  const int own = ThreadSlot::get();
  REQUIRE(own < kOwnSlots);
  std::vector<int> expected;
  for (int number = 0; number < kOwnSlots; ++number) {
    if (number != own) expected.push_back(number);
  }
  CHECK(numbers_of(kOwnSlots - 1) == expected);
  // The threads of the line above have ended.
  expected.insert(expected.end(), 2, kOwnSlots);
  CHECK(numbers_of(kOwnSlots + 1) == expected);
}

TEST_CASE("a mutex of one byte lets one thread in at a time, and loses no waiter") {
  static_assert(sizeof(SmallMutex) == 1);
  constexpr int kThreads = 4, kRounds = 20'000;
  SmallMutex mutex;
  int inside = 0, most = 0, rounds = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::scoped_lock held(mutex);
        most = ++inside > most ? inside : most;
        ++rounds;
        --inside;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(rounds == kThreads * kRounds);
  CHECK(most == 1);
}

// ---- the biased mutex -----------------------------------------------------------------------------------------------

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
  CHECK(entered == 0);
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

TEST_CASE("a thread that enters often in a row takes the bias, but none that only visits does") {
  REQUIRE(supports_process_membarrier());
  constexpr int kEnough = Timing::kInARow;
  const auto pass = [](BiasedMutex& mutex, int times) {
    for (int i = 0; i < times; ++i) const std::scoped_lock held(mutex);
  };
  const auto visit = [&](BiasedMutex& mutex, int times) {
    std::thread([&, times] {
      BiasedMutex::this_thread_never_owns();
      pass(mutex, times);
    }).join();
  };
  BiasedMutex mutex, visited_first;
  pass(mutex, 1);
  CHECK(mutex.biased());
  for (int visits = 0; visits < 2; ++visits) {
    visit(mutex, 1);
    CHECK_FALSE(mutex.biased());
    pass(mutex, kEnough - 1);
    CHECK_FALSE(mutex.biased());
    pass(mutex, 1);
    CHECK(mutex.biased());
    pass(mutex, 3);
    CHECK(mutex.biased());
  }
  visit(visited_first, 2 * kEnough);
  CHECK_FALSE(visited_first.biased());
  pass(visited_first, kEnough);
  CHECK(visited_first.biased());
  // Another thread takes it from the owner, and the owner back from that.
  std::thread([&] {
    pass(mutex, kEnough - 1);
    CHECK_FALSE(mutex.biased());
    pass(mutex, 1);
    CHECK(mutex.biased());
  }).join();
  pass(mutex, 1);
  CHECK_FALSE(mutex.biased());
  pass(mutex, kEnough - 1);
  CHECK(mutex.biased());
}

TEST_CASE("threads that take the bias from each other, and those that visit, exclude each other") {
  constexpr int kThreads = 3, kTurns = 200;
  BiasedMutex mutex;
  std::int64_t count = 0;
  const auto add = [&] {
    const std::scoped_lock held(mutex);
    ++count;
  };
  std::atomic<int> turns = 0;
  std::atomic<std::int64_t> all = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread <= kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const bool visits = thread == kThreads;
      if (visits) BiasedMutex::this_thread_never_owns();
      for (int turn = 0; turn < kTurns; turn = visits ? turns.load() : ++turns) {
        // In its turn a thread enters often enough to take the bias, and the others disturb it now and then.
        const int times = turn % kThreads == thread ? 2 * Timing::kInARow : visits ? 1 : 3;
        for (int i = 0; i < times; ++i) add();
        all += times;
        if (visits) std::this_thread::yield();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(count == all);
}

// ---- the model ------------------------------------------------------------------------------------------------------
// Two threads enter their sections some times each. The stores of each wait in a buffer, and reach memory in their
// order at any later time. Whenever a thread has `shared`, it may take the bias or not. A thread that ends a bias
// sleeps if it finds the owner inside.
namespace {

struct Model {
  bool barrier = true;
  bool waits = true;        // for `inside`
  bool reads_again = true;  // the state, when it has `shared`
  bool wakes = true;        // when the owner leaves and reads kRevoking

  static constexpr std::uint8_t kRevoking = 2, kShared = 3;  // and 0, 1: the thread that has the bias
  enum Word : std::uint8_t { kInside0, kInside1, kState, kSharedWord };
  struct Store {
    Word word = kInside0;
    std::uint8_t value = 0;
    auto operator<=>(const Store&) const = default;
  };
  enum Step : std::uint8_t {
    kComes,
    kReads,
    kTurnsBack,
    kBarrier,
    kAwaits,
    kSleeps,
    kLocks,
    kInAsOwner,
    kLeaves,
    kInShared
  };
  static constexpr int kTimes = 2;

  struct Thread {
    Step step = kComes;
    std::uint8_t times = 0;
    std::uint8_t buffered = 0;
    std::array<Store, 6> stores{};  // oldest first
    auto operator<=>(const Thread&) const = default;
    bool in() const { return step == kInAsOwner || step == kInShared; }
  };
  struct State {
    std::array<Thread, 2> threads{};
    std::array<std::uint8_t, 4> memory{};  // the bias is thread 0's
    auto operator<=>(const State&) const = default;
  };

  std::set<State> seen;
  bool both = false;
  bool moved = false;  // thread 1 has had the bias
  bool ends = false;   // both have come as often as they shall
  bool stuck = false;  // in some state no thread can go on

  static void store(Thread& t, int word, std::uint8_t value) { t.stores[t.buffered++] = {Word(word), value}; }
  static void drain_one(State& s, int thread) {
    Thread& t = s.threads[thread];
    s.memory[t.stores[0].word] = t.stores[0].value;
    for (std::size_t i = 1; i < t.stores.size(); ++i) t.stores[i - 1] = t.stores[i];
    t.stores.back() = {};
    --t.buffered;
  }
  static void drain(State& s, int thread) {
    while (s.threads[thread].buffered > 0) drain_one(s, thread);
  }
  // What the thread reads: its own last store, if that is in its buffer.
  static std::uint8_t read(const State& s, int thread, int word) {
    const Thread& t = s.threads[thread];
    for (std::size_t i = t.buffered; i > 0; --i) {
      if (t.stores[i - 1].word == word) return t.stores[i - 1].value;
    }
    return s.memory[word];
  }

  void visit(const State& s) {
    if (!seen.insert(s).second) return;
    both = both || (s.threads[0].in() && s.threads[1].in());
    moved = moved || s.threads[1].step == kInAsOwner;
    std::vector<State> next;
    bool over = true;
    for (const int thread : {0, 1}) {
      if (s.threads[thread].buffered > 0) {
        next.push_back(s);
        drain_one(next.back(), thread);
      }
      if (s.threads[thread].times == kTimes) continue;
      over = false;
      step(s, thread, next);
    }
    ends = ends || over;
    stuck = stuck || (!over && std::ranges::all_of(next, [&](const State& each) { return each == s; }));
    for (const State& each : next) visit(each);
  }
  void wake_if_revoking(State& s, int thread) const {
    if (!wakes || read(s, thread, kState) != kRevoking) return;
    drain(s, thread);
    Thread& other = s.threads[1 - thread];
    if (other.step == kSleeps) other.step = kAwaits;
  }
  void step(State s, int thread, std::vector<State>& next) const {
    Thread& t = s.threads[thread];
    const int other = 1 - thread;
    switch (t.step) {
      case kComes: {
        const std::uint8_t state = read(s, thread, kState);
        if (state == thread) {
          store(t, kInside0 + thread, 1);
          t.step = kReads;
        } else if (state == other) {
          drain(s, thread);  // before the atomic
          if (s.memory[kState] != other) break;
          s.memory[kState] = kRevoking;
          t.step = kBarrier;
        } else if (state == kShared) {
          t.step = kLocks;
        }
        break;
      }
      case kReads:
        if (read(s, thread, kState) == thread) {
          t.step = kInAsOwner;
        } else {
          store(t, kInside0 + thread, 0);
          t.step = kTurnsBack;
        }
        break;
      case kTurnsBack:
        wake_if_revoking(s, thread);
        t.step = kComes;
        break;
      case kBarrier:
        if (barrier) drain(s, other);
        t.step = kAwaits;
        break;
      case kAwaits:
        if (waits && s.memory[kInside0 + other] != 0) {
          t.step = kSleeps;
          break;
        }
        store(t, kState, kShared);
        t.step = kLocks;
        break;
      case kSleeps: break;
      case kLocks:
        drain(s, thread);
        if (s.memory[kSharedWord] != 0) break;
        s.memory[kSharedWord] = 1;
        if (reads_again && s.memory[kState] != kShared) {
          store(t, kSharedWord, 0);
          t.step = kComes;
          break;
        }
        t.step = kInShared;
        next.push_back(s);
        store(t, kInside0 + thread, 1);
        store(t, kState, static_cast<std::uint8_t>(thread));
        store(t, kSharedWord, 0);
        t.step = kInAsOwner;
        break;
      case kInAsOwner:
        store(t, kInside0 + thread, 0);
        t.step = kLeaves;
        break;
      case kLeaves:
        wake_if_revoking(s, thread);
        t.step = kComes;
        ++t.times;
        break;
      case kInShared:
        store(t, kSharedWord, 0);
        t.step = kComes;
        ++t.times;
    }
    next.push_back(s);
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
  CHECK(model.moved);
  return {!model.both, !model.stuck};
}

}  // namespace

TEST_CASE(
    "in no interleaving two threads that take the bias from each other are in their sections at once, or sleep for "
    "ever") {
  const Found with_all = explore();
  CHECK(with_all.excludes);
  CHECK(with_all.goes_on);
  CHECK_FALSE(explore(&Model::barrier).excludes);
  CHECK_FALSE(explore(&Model::barrier).goes_on);
  CHECK_FALSE(explore(&Model::waits).excludes);
  CHECK_FALSE(explore(&Model::reads_again).excludes);
  CHECK_FALSE(explore(&Model::wakes).goes_on);
}

}  // namespace farside::threads_test
