// SPDX-License-Identifier: BSD-3-Clause
// The progress thread with work of the test, and a file descriptor in place of a completion queue.
#include "transport/fabric/progress_thread.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <catch2/catch.hpp>

namespace farside::progress_thread_test {

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

template <class Done>
bool soon(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return done();
}

// A sleeper, woken by the thread.
struct Listener {
  WakeEvent wake_event;
  std::uint32_t armed = wake_event.arm();
  ~Listener() { wake_event.disarm(); }
};

}  // namespace

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
