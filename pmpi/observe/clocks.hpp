// SPDX-License-Identifier: BSD-3-Clause
// The offsets between the clocks of nodes, for traces. Processes of one node share one CLOCK_MONOTONIC.
//
// Thread safety: any thread. Errors: a failure of the runtime is a warning, and some offsets stay unknown.
#pragma once

#include <cstdint>
#include <vector>

#include <mpi.h>

#include "transport/base/trace.hpp"

namespace farside::pmpi {

// Returns a number that identifies the CLOCK_MONOTONIC of this process. All processes of one boot of one kernel and one
// time namespace have the same number.
std::uint64_t clock_id();

// Whether compare_clocks has been called.
bool clock_is_known();

// Collective over ranks that all record a trace. The lowest rank of each clock compares its clock with rank 0's by 32
// round trips of messages on a duplicated communicator. The shortest round trip gives the offset, with an uncertainty
// of half that trip. A round trip takes some 50 us; rank 0 answers one clock after the other.
void compare_clocks(MPI_Comm communicator);

// Returns the offsets as TraceKind::kClock records: `granted` is the other clock, `begin` its lead over this clock in
// nanoseconds (two's complement), `end` the uncertainty.
std::vector<TraceRecord> known_clocks();

}  // namespace farside::pmpi
