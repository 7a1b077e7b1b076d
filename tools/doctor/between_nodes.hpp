// SPDX-License-Identifier: BSD-3-Clause
// Measurements between nodes: the time of puts to the next node, and the offset of the clocks. Both functions are
// collective over a communicator with one rank of each node, in the order of the nodes.
#pragma once

#include <mpi.h>

#include "tools/doctor/watchdog.hpp"
#include "tools/json.hpp"

namespace farside::tools {

// Returns this node's entry of links[] (examination.hpp): medians of a put of 8 bytes and of 1 MiB, each with a flush,
// to the next node, whose rank waits in MPI_Barrier. No node is origin and target at the same time. Cost: three rounds
// of 0.15 s.
Json measure_link(MPI_Comm nodes, Watchdog& watchdog);

// Returns this node's entry of clocks[]. Cost: 32 round trips with node 0, one node after the other.
Json measure_clock(MPI_Comm nodes);

}  // namespace farside::tools
