// SPDX-License-Identifier: BSD-3-Clause
// All waits of farside. A waiter spins briefly, then yields, then sleeps; while a large transfer is on its way, whose
// data the polls move, it goes on yielding. Meanwhile it progresses this process's endpoint and the MPI runtime,
// because peers may depend on them (for instance on a pending MPI_Isend of this rank). Ranks may outnumber cores, so a
// wait that only spins would take a time slice.
//
//   for (Waiter waiter(progress, wake_event); !done();) waiter.pause();
//
// A wait that takes long is reported, if its thread has announced a reason (long_wait.hpp).
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/base/long_wait.hpp"
#include "transport/base/relax.hpp"
#include "transport/base/waited.hpp"
#include "transport/base/wake_event.hpp"

namespace farside {

// The progress that a waiting application thread makes. One object per process (transport/process.hpp).
class Progress {
 public:
  // Progresses the endpoint, without blocking.
  virtual void poll() = 0;
  // Progresses the MPI runtime, without blocking. Only called from application threads.
  virtual void poll_runtime() = 0;
  // Between these two calls, arrivals at the endpoint signal `wake_event`, too.
  virtual void listen(WakeEvent& wake_event) = 0;
  virtual void stop_listening(WakeEvent& wake_event) = 0;
  // Returns whether polls are expected to move the data of a large transfer now. A waiter then does not sleep.
  virtual bool transfers() const { return false; }
  // Returns the maximal sleep of a waiter. It limits the delay of the runtime, which has no wake event.
  virtual std::chrono::microseconds longest_sleep() const { return std::chrono::milliseconds(1); }

 protected:
  ~Progress() = default;
};

class Waiter {
 public:
  // A change of the awaited condition must signal `wake_event`. Arrivals at the endpoint signal it, too.
  Waiter(Progress& progress, WakeEvent& wake_event) : progress_(progress), wake_event_(wake_event) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
    if (armed_) disarm();
    if (begun_ != 0) [[unlikely]] note_end();
  }

  // One step of the wait, to be called between two reads of the awaited condition.
  void pause() {
    if (rounds_ >= kSpins) return pause_longer();
    if (rounds_ == 0 && Waited::measured()) [[unlikely]] begun_ = ticks();
    ++rounds_;
    relax();
    if (rounds_ % 8 == 0) progress_.poll();
  }
  // Whether the next step may sleep; and whether the last one has yielded.
  bool may_sleep() const { return rounds_ >= kSpins + kYields; }
  bool has_yielded() const { return rounds_ > kSpins; }

 private:
  // Measured on 2 cores with 2 to 8 ranks: a hand-off on a mapped target takes under 200 ns, a round trip over loopback
  // TCP 20 to 60 us, and a yield 0.5 us without other runnable threads, otherwise a time slice.
  static constexpr std::uint32_t kSpins = 64;
  static constexpr std::uint32_t kYields = 64;
  // A wait for a large transfer may only yield.
  static constexpr std::uint32_t kYieldsPerClock = 4096;

  void pause_longer();
  void arm();
  void disarm();
  void note_end() const;
  void look_at_clock();

  Progress& progress_;
  WakeEvent& wake_event_;
  std::uint32_t rounds_ = 0;
  std::uint32_t seen_ = 0;
  bool armed_ = false;
  Ticks begun_ = 0;   // 0 unless waits are measured
  // When the wait first looked at the clock, and after how long it is reported next.
  LongWait::Clock::time_point since_{};
  std::chrono::seconds next_report_{};
};

}  // namespace farside
