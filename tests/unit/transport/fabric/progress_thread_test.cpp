// SPDX-License-Identifier: BSD-3-Clause
// When the progress thread backs off, by a clock of the test; and the thread itself with work of the test, and a file
// descriptor in place of a completion queue.
#include "transport/fabric/progress_thread.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"

namespace farside::progress_thread_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

struct Thread final : ProgressThread::Work {
  UniqueFd arrivals{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<int> checks{0}, looks{0}, taken{0}, passes{0};
  std::atomic<std::chrono::milliseconds> limit{10'000ms};
  std::atomic<bool> runtime_polls{false};  // a thread in the runtime polls during each pass
  std::atomic<bool> others{false};         // another thread is in a poll all the time
  std::atomic<bool> others_take{false};    // and takes arrivals, from the first one that the thread has taken
  ProgressThread thread;

  Thread() { REQUIRE(thread.start(*this, arrivals.get()).ok()); }
  ~Thread() { thread.stop(); }
  void arrive() { eventfd_write(arrivals.get(), 1); }
  void check() override { ++checks; }
  void read_connection_events() override { ++looks; }
  Sleep progress(bool) override {
    ++passes;
    if (runtime_polls) thread.polled_from_runtime();
    eventfd_t count = 0;
    if (eventfd_read(arrivals.get(), &count) == 0) {
      taken += static_cast<int>(count);
      if (others_take) others = true;
    }
    return {limit, -1};
  }
  bool endpoint_is_busy() override {
    if (others && others_take) thread.taken();
    return others;
  }
  bool may_sleep() override { return true; }
};

// A sleeper, woken by the thread.
struct Listener {
  WakeEvent wake_event;
  std::uint32_t armed = wake_event.arm();
  ~Listener() { wake_event.disarm(); }
};

using Time = Clock::time_point;
using BackOff = std::optional<std::chrono::microseconds>;

const Time kBegin = Time{} + 1h;

// Other threads poll for this time. Returns the last back-off of the progress thread.
BackOff polled_for(AdaptivePolling& polling, Time& now, std::chrono::microseconds time) {
  const Time end = now + time;
  BackOff back_off = polling.next(true, now);
  while (back_off && now + *back_off <= end) {
    now += *back_off;
    back_off = polling.next(true, now);
  }
  return back_off;
}

}  // namespace

TEST_CASE("the longer others have polled, the longer the thread stays away, within bounds") {
  AdaptivePolling polling;
  Time now = kBegin;
  CHECK(polled_for(polling, now, 300us) == Timing::kShortestBackOff);
  const BackOff after_2_ms = polled_for(polling, now, 1700us);
  REQUIRE(after_2_ms);
  CHECK(*after_2_ms > 150us);
  CHECK(*after_2_ms <= 250us);
  CHECK(polled_for(polling, now, 20ms) == Timing::kLongestBackOff);
  // After a pause it begins anew.
  now += 100us;
  CHECK(polling.next(false, now) == std::nullopt);
  CHECK(polling.next(true, now) == Timing::kShortestBackOff);
}

TEST_CASE("threads that wait in the runtime serve for a while, then the thread looks") {
  AdaptivePolling polling;
  CHECK_FALSE(polling.runtime_serves());
  polling.delegate_to_runtime(kBegin, 10us);
  CHECK(polling.runtime_serves());
  // The thread backs off before the waiting threads can have polled.
  CHECK(polling.next(false, kBegin) == Timing::kShortestBackOff);
  Time now = kBegin + 50us;
  CHECK(polled_for(polling, now, Timing::kRuntimeServes - 100us));
  CHECK(polling.runtime_serves());
  CHECK_FALSE(polling.probe_is_due(now));
  now = kBegin + Timing::kRuntimeServes;
  CHECK(polling.probe_is_due(now));
  // The waiting threads continue to poll, and have polled for long.
  polling.runtime_serves_on(now);
  CHECK_FALSE(polling.probe_is_due(now));
  const BackOff again = polling.next(true, now);
  REQUIRE(again);
  CHECK(*again > 500us);
}

TEST_CASE("after long work the thread stays away for as long as it has worked") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, 300us);
  CHECK(polling.next(false, kBegin) == 300us);
  CHECK(polling.next(true, kBegin + 300us) == Timing::kShortestBackOff);
  polling.delegate_to_runtime(kBegin + 400us, 1s);
  CHECK(polling.next(false, kBegin + 400us) == Timing::kLongestBackOff);
}

TEST_CASE("what arrives wakes the progress thread, and it sleeps else") {
  Thread one;
  CHECK(soon([&] { return one.passes > 0; }));
  for (int i = 1; i <= 20; ++i) {
    one.arrive();
    CHECK(soon([&] { return one.taken == i; }));
  }
  std::this_thread::sleep_for(50ms);
  const int before = one.passes;
  std::this_thread::sleep_for(500ms);
  CHECK(one.passes == before);
  one.thread.wake();
  CHECK(soon([&] { return one.passes > before; }));
}

TEST_CASE("the progress thread sleeps only as long as its work says, and checks at regular times") {
  Thread one;
  one.limit = 5ms;
  one.thread.wake();
  CHECK(soon([&] { return one.passes > 20; }));
  CHECK(soon([&] { return one.checks >= 2; }));
}

TEST_CASE("while application threads poll, the progress thread backs off, and looks at connections") {
  Thread one;
  one.limit = 1ms;
  one.thread.wake();
  std::atomic<bool> stop{false};
  std::thread poller([&] {
    while (!stop) one.thread.polled();
  });
  const bool backs_off = soon([&] { return one.looks > 20; });
  // A thread that sleeps until something arrives calls it back.
  Listener listener;
  one.thread.listen(listener.wake_event);
  one.arrive();
  const bool serves = soon([&] { return one.taken == 1; });
  one.thread.stop_listening(listener.wake_event);
  stop = true;
  poller.join();
  CHECK(backs_off);
  CHECK(serves);
}

TEST_CASE("threads that sleep are woken by what arrives, and by others that take it") {
  Thread one;
  Listener listener, gone;
  one.thread.listen(listener.wake_event);
  one.thread.listen(gone.wake_event);
  one.thread.stop_listening(gone.wake_event);
  one.thread.stop_listening(gone.wake_event);  // a thread that began to sleep before there was an endpoint
  one.arrive();
  const auto begin = std::chrono::steady_clock::now();
  listener.wake_event.sleep(listener.armed, 10s);
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  one.thread.stop_listening(listener.wake_event);
}

TEST_CASE("arrivals are left to threads in the runtime that poll when one comes, for a while") {
  Thread one;
  CHECK_FALSE(one.thread.polled_from_runtime());
  one.arrive();
  CHECK(soon([&] { return one.taken == 1; }));
  CHECK_FALSE(one.thread.polled_from_runtime());
  one.runtime_polls = true;
  CHECK(soon([&] {
    one.arrive();
    // For the back-off at least; nobody polls in it.
    for (const auto end = std::chrono::steady_clock::now() + 1ms; std::chrono::steady_clock::now() < end;) {
      if (one.thread.polled_from_runtime()) return true;
    }
    return false;
  }));
  one.runtime_polls = false;
  CHECK(soon([&] { return !one.thread.polled_from_runtime(); }));
  const int before = one.taken;
  one.arrive();
  CHECK(soon([&] { return one.taken > before; }));
}

TEST_CASE("arrivals are left to threads in the runtime for as long as they poll and take some") {
  Thread one;
  one.runtime_polls = one.others_take = true;
  // The first pass that finds an arrival after a sleep leaves the next ones to the others.
  CHECK(soon([&] {
    if (one.others && one.thread.polled_from_runtime()) return true;
    one.others = false;
    one.arrive();
    return false;
  }));
  // The time is over several times without a pass of the thread.
  const int passes = one.passes;
  std::this_thread::sleep_for(6 * Timing::kRuntimeServes);
  CHECK(one.passes == passes);
  CHECK(one.thread.polled_from_runtime());
  one.others_take = false;
  CHECK(soon([&] { return one.passes > passes; }));
}

TEST_CASE("a poll that takes longer than a back-off keeps the progress thread away") {
  Thread one;
  CHECK(soon([&] { return one.passes > 0; }));
  one.others = true;
  one.thread.wake();
  CHECK(soon([&] { return one.looks > 0; }));
  one.arrive();
  CHECK(soon([&, looks = one.looks.load()] { return one.looks > looks + 5; }));
  CHECK(one.taken == 0);
  one.others = false;
  CHECK(soon([&] { return one.taken == 1; }));
}

}  // namespace farside::progress_thread_test
