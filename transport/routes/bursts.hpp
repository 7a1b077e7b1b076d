// SPDX-License-Identifier: BSD-3-Clause
// Bursts: predicts whether the small operations of a process towards a target come in bursts: several in quick
// succession, then a flush. If so, the next burst travels in one message from its first operation on. Otherwise the
// first operation is issued at once, so that it is under way while the application computes.
//
// Not thread-safe: the mutex of the route guards it. Cost: at most three reads of the clock per burst.
#pragma once

#include <chrono>
#include <cstdint>

namespace farside {

class Bursts {
 public:
  using Clock = std::chrono::steady_clock;
  // The longest time from the first operation of a burst to its flush. Hundreds of operations take less, and an
  // operation that is delayed by this time loses little.
  static constexpr std::chrono::microseconds kLongest{50};

  Bursts() = default;
  // `expected`: the last burst of this target has ended as one that is followed by others (expected()).
  explicit Bursts(bool expected) : expected_(expected) {}
  bool expected() const { return expected_; }

  enum class Next : std::uint8_t {
    kDefault,
    kCoalesce,  // the operation is coalesced even if nothing is under way
    kTooLate    // no burst after all: the delayed operation is issued now
  };
  // Counts a small operation, and says how to treat it.
  Next next_operation(Clock::time_point (*now)() = Clock::now) {
    ++operations_;
    if (operations_ == 1) {
      begun_ = now();
    } else if (operations_ == 2 && expected_ && now() - begun_ > kLongest) {
      expected_ = false;
      return Next::kTooLate;
    }
    return expected_ ? Next::kCoalesce : Next::kDefault;
  }
  // Notes that the operation was coalesced.
  void joined() { joined_ = true; }
  // Notes a flush, which ends a burst.
  void flushed(Clock::time_point (*now)() = Clock::now) {
    if (operations_ == 0) return;
    expected_ = operations_ > 1 && (expected_ || joined_) && now() - begun_ <= kLongest;
    operations_ = 0;
    joined_ = false;
  }

 private:
  bool expected_ = false, joined_ = false;
  std::uint64_t operations_ = 0;  // since the last flush
  Clock::time_point begun_;       // time of the first of them
};

}  // namespace farside
