// SPDX-License-Identifier: BSD-3-Clause
// Whether the small operations of a process towards a target come in rows: several in quick succession, and then a
// flush. Then the next row may travel in one message from its first operation on, which otherwise goes at once and
// alone, so that it is under way while the application computes. Who computes between operations, or before the flush,
// makes no rows.
#pragma once

#include <chrono>
#include <cstdint>

namespace farside {

class Bursts {
 public:
  using Clock = std::chrono::steady_clock;
  // From its first operation to its flush. Hundreds of operations take less, and what is held back for so long loses
  // little.
  static constexpr std::chrono::microseconds kLongest{50};

  enum class Next : std::uint8_t {
    kAsEver,
    kWaits,   // for more, even if nothing is under way
    kTooLate  // what was held back so far is not followed quickly: it goes now
  };
  // A small operation comes.
  Next comes(Clock::time_point (*now)() = Clock::now) {
    ++operations_;
    if (operations_ == 1) {
      begun_ = now();
    } else if (operations_ == 2 && expected_ && now() - begun_ > kLongest) {
      expected_ = false;
      return Next::kTooLate;
    }
    return expected_ ? Next::kWaits : Next::kAsEver;
  }
  // It joined others, as some were under way still.
  void joined() { joined_ = true; }
  // All of them are to be complete now.
  void flushed(Clock::time_point (*now)() = Clock::now) {
    if (operations_ == 0) return;
    expected_ = operations_ > 1 && (expected_ || joined_) && now() - begun_ <= kLongest;
    operations_ = 0;
    joined_ = false;
  }

 private:
  bool expected_ = false, joined_ = false;
  std::uint64_t operations_ = 0;  // since the last flush
  Clock::time_point begun_;       // the first of them
};

}  // namespace farside
