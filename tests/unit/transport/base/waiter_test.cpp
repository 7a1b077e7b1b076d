// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/waiter.hpp"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::waiter_test {

using namespace std::chrono_literals;

namespace {

// Counts the polls of a waiter.
struct Recorder final : Progress {
  void poll() override { ++polls; }
  void poll_runtime() override { ++runtime_polls; }
  void listen(WakeEvent&) override { ++listening; }
  void stop_listening(WakeEvent&) override { --listening; }
  int polls = 0, runtime_polls = 0, listening = 0;
};

// Pauses until the waiter is about to sleep, and returns the number of pauses.
int pause_until_armed(Waiter& waiter, const Recorder& recorder) {
  int pauses = 0;
  while (recorder.listening == 0) {
    waiter.pause();
    ++pauses;
  }
  return pauses;
}

}  // namespace

TEST_CASE("a waiter polls the endpoint while it spins, and the runtime before it ever sleeps") {
  Recorder recorder;
  WakeEvent wake_event;
  Waiter waiter(recorder, wake_event);
  for (int i = 0; i < 8; ++i) waiter.pause();
  CHECK(recorder.polls > 0);
  const int pauses = pause_until_armed(waiter, recorder);
  CHECK(pauses > 50);
  CHECK(recorder.runtime_polls > 1);
}

TEST_CASE("a waiter looks once more between arming the wake event and sleeping") {
  Recorder recorder;
  WakeEvent wake_event;
  Waiter waiter(recorder, wake_event);
  pause_until_armed(waiter, recorder);
  // The waiter must not sleep through a change from now on: the wake event is signalled before it sleeps.
  wake_event.wake_if_armed();
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) {
    wake_event.wake_if_armed();
    waiter.pause();
  }
  // If signals were lost, there would be 1000 sleeps of 1 ms.
  CHECK(std::chrono::steady_clock::now() - begun < 900ms);
}

TEST_CASE("a sleeping waiter comes back by itself, to look after the runtime") {
  Recorder recorder;
  WakeEvent wake_event;
  Waiter waiter(recorder, wake_event);
  pause_until_armed(waiter, recorder);
  const int before = recorder.runtime_polls;
  for (int i = 0; i < 10; ++i) waiter.pause();
  CHECK(recorder.runtime_polls >= before + 4);
}

TEST_CASE("a signal wakes a sleeping waiter, which listens only while it waits") {
  Recorder recorder;
  WakeEvent wake_event;
  std::atomic<bool> changed{false};
  std::thread other([&] {
    std::this_thread::sleep_for(5ms);
    changed.store(true);
    wake_event.wake_if_armed();
  });
  for (Waiter waiter(recorder, wake_event); !changed.load();) waiter.pause();
  other.join();
  CHECK(recorder.listening == 0);
  // A waiter that is destroyed while armed stops listening.
  Recorder again;
  {
    Waiter waiter(again, wake_event);
    pause_until_armed(waiter, again);
  }
  CHECK(again.listening == 0);
}

TEST_CASE("a long wait is reported once, and again after each doubling of its time") {
  struct Reason final : LongWait::Reason {
    std::string text(std::chrono::seconds waited) const override {
      times.push_back(waited);
      return {};
    }
    const char* call() const override { return "MPI_Win_lock"; }
    mutable std::vector<std::chrono::seconds> times;
  };
  Recorder recorder;
  WakeEvent wake_event;
  LongWait::report_after(1s);
  // A wait that ends when it was reported, or after this time.
  const auto wait = [&](std::chrono::milliseconds time, auto&& reported) {
    const auto end = std::chrono::steady_clock::now() + time;
    for (Waiter waiter(recorder, wake_event); !reported() && std::chrono::steady_clock::now() < end;) waiter.pause();
  };
  const auto never = [] { return false; };
  Reason reason;
  wait(500ms, never);
  CHECK(reason.times.empty());
  wait(30s, [&] { return reason.times.size() == 2; });
  REQUIRE(reason.times.size() == 2);
  CHECK(reason.times[0] >= 1s);
  CHECK(reason.times[1] >= 2 * reason.times[0]);
  reason.times.clear();
  {
    // The innermost reason speaks, and knows the call.
    struct Inner final : LongWait::Reason {
      std::string text(std::chrono::seconds) const override {
        of = call();
        return {};
      }
      mutable std::string of;
    };
    const Inner inner;
    wait(30s, [&] { return !inner.of.empty(); });
    CHECK(inner.of == "MPI_Win_lock");
  }
  CHECK(reason.times.empty());
  LongWait::report_after(0s);
  wait(1300ms, never);
  CHECK(reason.times.empty());
}

}  // namespace farside::waiter_test
