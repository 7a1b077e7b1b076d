// SPDX-License-Identifier: BSD-3-Clause
// How long a waiter that is beyond the ring pauses between its probes of the lock word (lock.hpp), so that it needs few
// and nevertheless is in the ring before its turn comes: who comes late holds up all behind it.
//
// It knows who is in front of it, and so about how many hand-offs that will take; how long they take it learns from
// its looks. What it sees may be slow only because others came late, and to go by that would make it last. So it
// believes in a pace at most one and a half times as slow as it did before, and looks again when it has been slower; a
// faster one it believes at once. A believed pace takes it to its place in the ring without another look.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"

namespace farside::epochs {

class ProbePacing {
 public:
  struct Pause {
    std::uint64_t hand_offs;
    bool probe;  // afterwards; else try the slot
  };

  // How many hand-offs' time it paused, and how many seem to have taken place meanwhile.
  struct Seen {
    std::uint64_t paused;
    std::uint64_t hand_offs;
  };

  // Among so many who hold or wait, at least the length of the ring.
  Pause begin(std::uint64_t writers, std::uint64_t readers, bool writers_share) {
    distance_ = writers + readers;
    // A group that goes together takes about as long as one alone, and a bit for each of it to be woken.
    const std::uint64_t groups = writers * readers / distance_;
    const std::uint64_t hand_offs = groups + readers / 4 + (writers_share ? groups + writers / 4 : writers);
    expected_ = pace_ = std::max<std::uint64_t>(hand_offs * kOne / distance_, 1);
    return pause(true);
  }
  // From `distance` before its turn. Meanwhile nothing but pauses took time.
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
  // Between the last two looks; nothing (0) if it slept.
  Seen seen() const { return {paused_before_, gone_ * expected_ / kOne}; }
  // The hand-off had come before it. How much too late it came nobody knows: counts as twice the time.
  Seen late() const { return {paused_, 2 * paused_ * expected_ / std::max<std::uint64_t>(pace_, 1)}; }
  // It slept in between: the next look says nothing about the pace.
  void slept() { paused_ = 0; }

 private:
  static constexpr std::uint64_t kOne = 1024;
  static constexpr std::uint64_t kSlowest = kOne << 24;

  Pause pause(bool probe) {
    // To the middle of the ring, so that it may be half the ring too early or too late.
    const std::uint64_t rest = distance_ - ControlBlock::kRingSlots / 2;
    paused_before_ = paused_;
    paused_ = std::max<std::uint64_t>(rest * pace_ / kOne, 1);
    return {paused_, probe};
  }

  std::uint64_t distance_ = 0;  // from the front, at the last look
  std::uint64_t paused_ = 0;    // since then, in hand-offs
  std::uint64_t paused_before_ = 0;
  std::uint64_t gone_ = 0;      // tickets, between the last two looks
  std::uint64_t expected_ = 0;  // hand-offs per ticket, in shares of kOne: from who was in front
  std::uint64_t pace_ = 0;      // likewise: from what was seen
};

}  // namespace farside::epochs
