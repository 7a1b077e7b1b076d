// SPDX-License-Identifier: BSD-3-Clause
// The lock and the gate, unchanged, with a ring of FARSIDE_SMALL_RING slots (1 or 2) instead of 64, so that three ranks are enough
// to wait beyond it and to meet in a slot. All that is farside's has another name in a source file that includes
// this first; nothing of it meets the real one.
#pragma once

#if FARSIDE_SMALL_RING == 1
#define farside farside_with_a_ring_of_1
#elif FARSIDE_SMALL_RING == 2
#define farside farside_with_a_ring_of_2
#else
#error "define FARSIDE_SMALL_RING as 1 or 2"
#endif

#include "epochs/control_block.hpp"

namespace farside::epochs {

struct ControlBlockWithSmallRing : ControlBlock {
  static constexpr std::uint32_t kRingSlots = FARSIDE_SMALL_RING;
  static constexpr std::uint32_t ring_word(std::uint64_t ticket) {
    return kRing + 8U * static_cast<std::uint32_t>(ticket % kRingSlots);
  }
  static constexpr std::uint32_t gate_ring_word(std::uint64_t ticket) {
    return kGateRing + 8U * static_cast<std::uint32_t>(ticket % kRingSlots);
  }
};

}  // namespace farside::epochs

#define ControlBlock ControlBlockWithSmallRing
