// SPDX-License-Identifier: BSD-3-Clause
// The offset between the CLOCK_MONOTONIC of two processes, by round trips of messages: the shortest one counts, and
// half of it is the uncertainty. The caller chooses how the messages travel. Thread safety: none of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/ticks.hpp"

namespace farside {

inline constexpr int kClockRoundTrips = 32;

struct ClockOffset {
  std::int64_t ahead = 0;                       // the lead of the peer's clock, in nanoseconds
  std::uint64_t uncertain = ~std::uint64_t{0};  // nanoseconds
};

// Compares clocks with a peer that calls answer_clock(). `exchange(mine, theirs)` sends a reading and receives the
// peer's, and returns whether it could. Returns nothing if it could not.
template <class Exchange>
std::optional<ClockOffset> compare_clock(Exchange&& exchange) {
  ClockOffset best;
  for (int i = 0; i < kClockRoundTrips; ++i) {
    std::uint64_t theirs = 0;
    const std::uint64_t before = monotonic_ns();
    if (!exchange(before, theirs)) return std::nullopt;
    const std::uint64_t trip = monotonic_ns() - before;
    if (trip / 2 >= best.uncertain) continue;
    best = {static_cast<std::int64_t>(theirs - before - trip / 2), trip / 2};
  }
  return best;
}

// `receive(theirs)` and `send(mine)` return whether they could. Returns false if one could not.
template <class Receive, class Send>
bool answer_clock(Receive&& receive, Send&& send) {
  for (int i = 0; i < kClockRoundTrips; ++i) {
    std::uint64_t theirs = 0;
    if (!receive(theirs) || !send(monotonic_ns())) return false;
  }
  return true;
}

}  // namespace farside
