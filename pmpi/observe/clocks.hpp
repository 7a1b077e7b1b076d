// SPDX-License-Identifier: BSD-3-Clause
// For traces of several nodes: how far apart their clocks are. Processes of one node have one CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <vector>

#include <mpi.h>

#include "transport/base/trace_format.hpp"

namespace farside::pmpi {

// Whose CLOCK_MONOTONIC this process has: the same number for all processes that have the same (one boot of one kernel,
// one time namespace).
std::uint64_t clock_id();

// Whether compare_clocks has been called.
bool clock_is_known();

// Collective; all ranks record. Each clock but rank 0's is compared with that, by its lowest rank: the shortest of some
// round trips of messages on a communicator made for them, half of which the offset is uncertain by. Some 50 us per
// round trip.
void compare_clocks(MPI_Comm communicator);

// What was found, as TraceKind::kClock: `granted` is the other clock, `begin` how many nanoseconds it is ahead of this
// one (two's complement), `end` the uncertainty.
std::vector<TraceRecord> known_clocks();

}  // namespace farside::pmpi
