// SPDX-License-Identifier: BSD-3-Clause
// Pacing of the probes of the lock word by a waiter beyond the ring (lock.hpp). The waiter should need few probes,
// and should be in the ring before the hand-off reaches its ticket: a late waiter delays all tickets behind it.
//
// The lock word tells how many processes are in front, and thus about how many hand-offs lie ahead. The time per
// ticket, the pace, is learnt from probes. A pace may look slow only because other waiters were late, and believing
// it would perpetuate the delay. So a slower pace is believed up to one and a half times the former pace, and probed
// again beyond that. A faster pace is believed at once. A believed pace leads to the slot without another probe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"

namespace farside::epochs {

class ProbePacing {
 public:
  struct Pause {
    std::uint64_t hand_offs;
    bool probe;  // after the pause; else try the slot
  };

  // The pause, in times of a hand-off, and the hand-offs that seem to have taken place meanwhile.
  struct Seen {
    std::uint64_t paused;
    std::uint64_t hand_offs;
  };

  // The first pause, with so many processes present, at least the length of the ring.
  Pause begin(std::uint64_t writers, std::uint64_t readers, bool writers_share) {
    distance_ = writers + readers;
    // A group that holds together takes about as long as one holder, and a fraction more per member for its wake-up. At
    // the global lock the groups alternate, and the next owner learns how the hand-off continues by two round trips.
    const std::uint64_t groups = writers * readers / distance_;
    const std::uint64_t hand_offs = readers / 8 + (writers_share ? 5 * groups + writers / 8 : groups + writers);
    expected_ = pace_ = std::max<std::uint64_t>(hand_offs * kOne / distance_, 1);
    return pause(true);
  }
  // The next pause, at `distance` from the front. No time but that of pauses has passed since the last call.
  Pause again(std::uint64_t distance) {
    bool probe = false;
    if (paused_ > 0) {
      gone_ = distance_ - std::min(distance, distance_);
      const std::uint64_t seen = paused_ * kOne / std::max<std::uint64_t>(gone_, 1);
      probe = seen > pace_ * 3 / 2;
      pace_ = std::clamp<std::uint64_t>(probe ? pace_ * 3 / 2 : seen, 1, kSlowest);
    }
    distance_ = distance;
    return pause(probe);
  }
  // Between the last two probes; 0 if the waiter slept.
  Seen seen() const { return {paused_before_, gone_ * expected_ / kOne}; }
  // For a hand-off that was in the slot first. By how much the waiter was late is unknown: counts as twice the time.
  Seen late() const { return {paused_, 2 * paused_ * expected_ / std::max<std::uint64_t>(pace_, 1)}; }
  // The waiter slept in between, so the next probe says nothing about the pace.
  void slept() { paused_ = 0; }

 private:
  static constexpr std::uint64_t kOne = 1024;
  static constexpr std::uint64_t kSlowest = kOne << 24;

  Pause pause(bool probe) {
    // Aims at the middle of the ring, so that the waiter may be early or late by half the ring.
    const std::uint64_t rest = distance_ - ControlBlock::kRingSlots / 2;
    paused_before_ = paused_;
    paused_ = std::max<std::uint64_t>(rest * pace_ / kOne, 1);
    return {paused_, probe};
  }

  std::uint64_t distance_ = 0;  // from the front, at the last probe
  std::uint64_t paused_ = 0;    // since the last probe, in hand-offs
  std::uint64_t paused_before_ = 0;
  std::uint64_t gone_ = 0;      // tickets between the last two probes
  std::uint64_t expected_ = 0;  // hand-offs per ticket in units of 1 / kOne, from the groups in front
  std::uint64_t pace_ = 0;      // likewise, as learnt from probes
};

}  // namespace farside::epochs
