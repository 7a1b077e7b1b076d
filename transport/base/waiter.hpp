// SPDX-License-Identifier: BSD-3-Clause
// Waiting, the one way farside does it: spin briefly, then yield, then sleep, and all the while keep moving what
// others may be waiting for: this process's endpoint, and the MPI runtime (a rank that waits here may owe the
// peer a pending MPI_Isend). Ranks may outnumber cores, so spinning alone would cost a time slice per wait.
//
//   for (Waiter waiter(progress, wake event); !done();) waiter.pause();
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/base/relax.hpp"
#include "transport/base/waited.hpp"
#include "transport/base/wake_event.hpp"

namespace farside {

// What a waiting application thread keeps moving. One object per process (transport/process.hpp).
class Progress {
 public:
  // Moves the endpoint, without blocking.
  virtual void poll() = 0;
  // Moves the MPI runtime, without blocking. Only called from application threads.
  virtual void poll_runtime() = 0;
  // Between these two, `wake event` is also signalled when something has arrived at the endpoint.
  virtual void listen(WakeEvent& wake_event) = 0;
  virtual void stop_listening(WakeEvent& wake_event) = 0;
  // How long a waiter may sleep and not look: as long as the runtime can wait, which has no wake event, or, if nobody
  // signals for what arrives at the endpoint, as long as that can wait.
  virtual std::chrono::microseconds longest_sleep() const { return std::chrono::milliseconds(1); }

 protected:
  ~Progress() = default;
};

class Waiter {
 public:
  // `wake event` is signalled by whoever changes what is waited for; the endpoint's arrivals signal it as well.
  Waiter(Progress& progress, WakeEvent& wake_event) : progress_(progress), wake_event_(wake_event) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
    if (armed_) disarm();
    if (begun_ != 0) [[unlikely]] note_end();
  }

  // One step of waiting; call it between looks at what is waited for.
  void pause() {
    if (rounds_ >= kSpins) return pause_longer();
    if (rounds_ == 0 && Waited::measured()) [[unlikely]] begun_ = ticks();
    ++rounds_;
    relax();
    if (rounds_ % 8 == 0) progress_.poll();
  }

 private:
  // Measured on 2 cores with 2 to 8 ranks: a mapped hand-off takes under 200 ns, a round trip over loopback TCP 20
  // to 60 us, a yield 0.5 us alone and a time slice when others run.
  static constexpr std::uint32_t kSpins = 64;
  static constexpr std::uint32_t kYields = 64;

  void pause_longer();
  void arm();
  void disarm();
  void note_end() const;

  Progress& progress_;
  WakeEvent& wake_event_;
  std::uint32_t rounds_ = 0;
  std::uint32_t seen_ = 0;
  bool armed_ = false;
  Ticks begun_ = 0;   // if waits are measured
};

}  // namespace farside
