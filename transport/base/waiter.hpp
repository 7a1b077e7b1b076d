// SPDX-License-Identifier: BSD-3-Clause
// Waiting, the one way farside does it: spin briefly, then yield, then sleep, and all the while keep moving what
// others may be waiting for: this process's endpoint, and the MPI runtime (a rank that waits here may owe the
// peer a pending MPI_Isend). Ranks may outnumber cores, so spinning alone would cost a time slice per wait.
//
//   for (Waiter waiter; !done();) waiter.pause();
#pragma once

#include <chrono>
#include <cstdint>

namespace farside {

// What a waiting application thread keeps moving. One object per process (transport/process.hpp).
class Progress {
 public:
  // Moves the endpoint, without blocking.
  virtual void poll() = 0;
  // Moves the MPI runtime, without blocking. Only called from application threads.
  virtual void poll_runtime() = 0;
  // Sleeps until something may have arrived, at most `limit`.
  virtual void sleep(std::chrono::nanoseconds limit) = 0;

 protected:
  ~Progress() = default;
};

class Waiter {
 public:
  explicit Waiter(Progress& progress) : progress_(progress) {}

  // One step of waiting; call it between looks at what is waited for.
  void pause();

 private:
  // Chosen on 2 cores with 2 to 8 ranks: a mapped hand-over takes under 200 ns, a round trip over loopback TCP
  // 20 to 60 us, a yield 0.5 us alone and a time slice when others run.
  static constexpr std::uint32_t kSpins = 64;
  static constexpr std::uint32_t kYields = 256;
  static constexpr std::chrono::microseconds kFirstSleep{20};
  static constexpr std::chrono::microseconds kLongestSleep{1000};

  Progress& progress_;
  std::uint32_t rounds_ = 0;
  std::chrono::microseconds sleep_ = kFirstSleep;
};

}  // namespace farside
