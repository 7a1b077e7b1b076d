// SPDX-License-Identifier: BSD-3-Clause
// The lock, unchanged, with a ring of 2 slots instead of 64, so that three ranks are enough to wait beyond it and to
// meet in a slot. All that is farside's has another name in a source file that includes this first; nothing of it
// meets the real one.
#pragma once


#define farside farside_with_a_small_ring

#include "epochs/control_block.hpp"

namespace farside::epochs {

struct ControlBlockWithSmallRing : ControlBlock {
  static constexpr std::uint32_t kRingSlots = 2;
  static constexpr std::uint32_t ring_word(std::uint64_t ticket) {
    return kRing + 8U * static_cast<std::uint32_t>(ticket % kRingSlots);
  }
};

}  // namespace farside::epochs

#define ControlBlock ControlBlockWithSmallRing
