// SPDX-License-Identifier: BSD-3-Clause
// The lock and the global lock, unchanged, with rings of FARSIDE_SMALL_RING slots (1 or 2) instead of 256: three
// ranks suffice to wait beyond the ring and to meet in a slot. In a source file that includes this header first,
// namespace farside has another name, so that nothing is shared with the real protocols.
#pragma once

#if FARSIDE_SMALL_RING == 1
#define farside farside_with_a_ring_of_1
#elif FARSIDE_SMALL_RING == 2
#define farside farside_with_a_ring_of_2
#else
#error "define FARSIDE_SMALL_RING as 1 or 2"
#endif

#include "epochs/protocols/control_block.hpp"

namespace farside::epochs {

using ControlBlockWithSmallRing = ControlBlockOf<FARSIDE_SMALL_RING>;

}  // namespace farside::epochs

#define ControlBlock ControlBlockWithSmallRing

#include "epochs/protocols/hand_off.hpp"

namespace farside::epochs {

// Pauses have no length in the explorer, and the numbers of ProbePacing would multiply the states without end. The
// distance decides whether a waiter probes or tries its slot, so that both occur.
class PacingOfNoLength {
 public:
  using Pause = ProbePacing::Pause;
  using Seen = ProbePacing::Seen;
  Pause begin(std::uint64_t, std::uint64_t, bool) { return {1, true}; }
  Pause again(std::uint64_t distance) { return {1, distance % 2 == 0}; }
  Seen seen() const { return {0, 0}; }
  Seen late() const { return {0, 0}; }
  void slept() {}
};

}  // namespace farside::epochs

#define ProbePacing PacingOfNoLength
