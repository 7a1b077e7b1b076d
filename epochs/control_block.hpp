// SPDX-License-Identifier: BSD-3-Clause
// The control words of one rank in one window, at byte offsets from the start of its control block. Each group of
// words that different peers change has its own cache line.
//
//     0  transport's header (transport/space.hpp)
//    64  lock             the passive-target lock of this rank (lock.hpp)
//   128  completed        access epochs towards this rank that were completed (exposure.hpp); only grows
//   192  barrier[32]      round k: how many barriers the peer of that round has entered (barrier.hpp)
//   512  posted[]         one bit per peer: that peer has posted to this rank, which has not started yet
#pragma once

#include <cstddef>
#include <cstdint>

namespace farside::epochs {

struct ControlBlock {
  static constexpr std::uint32_t kLock = 64;
  static constexpr std::uint32_t kCompleted = 128;
  static constexpr std::uint32_t kBarrier = 192;
  static constexpr int kBarrierRounds = 32;
  static constexpr std::uint32_t kPosted = 512;

  static constexpr std::uint32_t barrier_word(int round) { return kBarrier + 8U * static_cast<std::uint32_t>(round); }
  static constexpr std::uint32_t posted_word(int peer) { return kPosted + 8U * (static_cast<std::uint32_t>(peer) / 64); }
  static constexpr std::uint64_t posted_bit(int peer) { return std::uint64_t{1} << (static_cast<unsigned>(peer) % 64); }
  static constexpr std::size_t bytes(int ranks) { return posted_word(ranks - 1) + 8; }
};
static_assert(ControlBlock::kBarrier + 8 * ControlBlock::kBarrierRounds <= ControlBlock::kPosted);

}  // namespace farside::epochs
