// SPDX-License-Identifier: BSD-3-Clause
// Checks what all ranks must agree on in the barriers of fence and free. The values travel in the words of the barrier
// (epochs/protocols/barrier.hpp), so the check needs no message of its own. Thread safety: any thread.
#pragma once

#include <cstdint>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

// Returns the bits of epochs::BarrierWord for the assertions of a fence.
std::uint8_t flags_of_fence(int assert);

// Fails with the class of a lost peer if the other rank could not notify some rank, with MPI_ERR_RMA_SYNC if one rank
// fences and the other frees, and with MPI_ERR_ASSERT if only one of the two gave an assertion that all or none must
// give.
Outcome check_agreement(int rank, std::uint8_t flags, int other_rank, std::uint8_t other_flags);

}  // namespace farside::pmpi
