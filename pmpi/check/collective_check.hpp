// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a window say to each other in the barriers of fence and free, and whether that belongs together.
// It travels in the words of the barrier (epochs/protocols/barrier.hpp): no message more.
#pragma once

#include <cstdint>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

// The bits of epochs::BarrierWord for the assertions of a fence.
std::uint8_t said_by_fence(int assert);

// Two ranks of which at least one gave an assertion that all or none must give, or one fences where the other frees.
Outcome check_agreement(int rank, std::uint8_t said, int other_rank, std::uint8_t other_said);

}  // namespace farside::pmpi
