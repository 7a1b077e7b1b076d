// SPDX-License-Identifier: BSD-3-Clause
// The clock for records: the processor's time-stamp counter if its rate is constant, otherwise CLOCK_MONOTONIC. To read
// the counter takes some 8 ns, half of which is the wait for earlier instructions. Two readings of both clocks
// (ClockPair) convert ticks into nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>

#if defined(__x86_64__)
#include <cpuid.h>  // not <x86intrin.h>, which takes 0.7 s to compile
#endif

namespace farside {

using Ticks = std::uint64_t;  // 0: no time was taken

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
}

// Returns whether the rate of the counter is constant (Intel SDM volume 3, "Invariant TSC").
inline bool invariant_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

inline const bool ticks_by_counter = invariant_counter();

inline Ticks ticks() {
#if defined(__x86_64__)
  if (ticks_by_counter) [[likely]]
    return __builtin_ia32_rdtsc();
#endif
  return monotonic_ns();
}

// Both clocks at almost the same time: the closest of 16 pairs of readings.
struct ClockPair {
  Ticks ticks = 0;
  std::uint64_t ns = 0;
  static ClockPair read() {
    ClockPair best;
    std::uint64_t closest = ~std::uint64_t{0};
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t before = monotonic_ns();
      const Ticks now = farside::ticks();
      const std::uint64_t after = monotonic_ns();
      if (after - before >= closest) continue;
      closest = after - before;
      best = {now, before + closest / 2};
    }
    return best;
  }
};

// Returns the length of a tick in nanoseconds; 0 if the counter has not moved between the readings.
inline double ns_per_tick(const ClockPair& first, const ClockPair& second) {
  return second.ticks > first.ticks
             ? static_cast<double>(second.ns - first.ns) / static_cast<double>(second.ticks - first.ticks)
             : 0.0;
}

// The offset between the CLOCK_MONOTONIC of two processes, by round trips of messages: the shortest one counts, and
// half of it is the uncertainty. The caller chooses how the messages travel. Not thread-safe.
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
