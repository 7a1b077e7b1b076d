// SPDX-License-Identifier: BSD-3-Clause
#include <mutex>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/threads.hpp"

namespace farside::small_mutex_test {

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

}  // namespace farside::small_mutex_test
