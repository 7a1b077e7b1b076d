// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/protocols/notification.hpp"

#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/remote_memory.hpp"

namespace farside::notification_test {

namespace {

using epochs::NotificationCounter;

// The owner's view of its control words.
struct Words {
  mutable std::uint64_t word = 0;
  std::uint64_t own(std::uint32_t) const { return ControlWord::look(word); }
  void notify(std::uint64_t times = 1) { ControlWord::fetch_add(word, times); }
};

}  // namespace

TEST_CASE("a notification counter counts from its last reset on") {
  Words words;
  NotificationCounter counter;
  CHECK(counter.value(words, 0) == 0);
  CHECK(counter.reset(words, 0) == 0);
  words.notify(3);
  CHECK(counter.value(words, 0) == 3);
  CHECK(counter.reset(words, 0) == 3);
  CHECK(counter.value(words, 0) == 0);
  words.notify();
  CHECK(counter.value(words, 0) == 1);
}

TEST_CASE("a notification counter counts on when its word overflows") {
  Words words{~std::uint64_t{0} - 1};
  NotificationCounter counter;
  counter.reset(words, 0);
  words.notify(5);
  CHECK(counter.value(words, 0) == 5);
  CHECK(counter.reset(words, 0) == 5);
}

TEST_CASE("resets of several threads take each notification once, and no thread sees less than none") {
  constexpr std::uint64_t kEach = 20'000;
  constexpr int kThreads = 3;
  Words words;
  NotificationCounter counter;
  std::atomic<std::uint64_t> taken{0};
  std::atomic<bool> below_none{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < kEach; ++round) {
        words.notify();
        if (counter.value(words, 0) > kThreads * kEach) below_none = true;
        if (round % 3 == 0) taken += counter.reset(words, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(!below_none);
  CHECK(taken + counter.reset(words, 0) == kThreads * kEach);
}

}  // namespace farside::notification_test
