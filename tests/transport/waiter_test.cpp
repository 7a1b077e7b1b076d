// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/waiter.hpp"

using namespace farside;
using namespace std::chrono_literals;

namespace {

// Writes down what a waiter moves. Its sleeps take no time.
struct Recorder final : Progress {
  void poll() override { ++polls; }
  void poll_runtime() override { ++runtime_polls; }
  void sleep(std::chrono::nanoseconds limit) override {
    polls_before_sleep.push_back(polls);
    runtime_polls_before_sleep.push_back(runtime_polls);
    sleeps.push_back(limit);
  }
  int polls = 0, runtime_polls = 0;
  std::vector<std::chrono::nanoseconds> sleeps;
  std::vector<int> polls_before_sleep, runtime_polls_before_sleep;
};

Recorder wait(int rounds) {
  Recorder recorder;
  Waiter waiter(recorder);
  for (int i = 0; i < rounds; ++i) waiter.pause();
  return recorder;
}

}  // namespace

TEST_CASE("a waiter polls the endpoint from the first rounds on and never waits long without") {
  CHECK(wait(8).polls > 0);
  for (const int rounds : {64, 320, 1000}) CHECK(wait(rounds).polls >= rounds / 8);
}

TEST_CASE("a waiter polls the runtime before it ever sleeps, and again before every sleep") {
  const Recorder recorder = wait(1000);
  REQUIRE(recorder.sleeps.size() > 10);
  CHECK(recorder.runtime_polls_before_sleep[0] > 1);
  for (std::size_t i = 1; i < recorder.sleeps.size(); ++i) {
    CHECK(recorder.runtime_polls_before_sleep[i] > recorder.runtime_polls_before_sleep[i - 1]);
    CHECK(recorder.polls_before_sleep[i] > recorder.polls_before_sleep[i - 1]);
  }
}

TEST_CASE("a waiter spins and yields first, then sleeps longer and longer, but at most 1 ms at a time") {
  const Recorder recorder = wait(2000);
  CHECK(wait(64).sleeps.empty());
  REQUIRE_FALSE(recorder.sleeps.empty());
  CHECK(recorder.sleeps.size() > 1000);
  CHECK(recorder.sleeps.front() <= 100us);
  CHECK(std::is_sorted(recorder.sleeps.begin(), recorder.sleeps.end()));
  CHECK(recorder.sleeps.front() > 0ns);
  CHECK(recorder.sleeps.back() <= 1ms);
}

TEST_CASE("each wait begins with spinning again") {
  Recorder recorder;
  for (int i = 0; i < 100; ++i) {
    Waiter waiter(recorder);
    for (int round = 0; round < 32; ++round) waiter.pause();
  }
  CHECK(recorder.sleeps.empty());
}
