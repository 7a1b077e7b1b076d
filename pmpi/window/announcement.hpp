// SPDX-License-Identifier: BSD-3-Clause
// The line that answers "is farside active?": with FARSIDE_LOG=info, rank 0 of MPI_COMM_WORLD (in a program with
// sessions only: of mpi://WORLD) prints it when it has made its first window. Example:
//
//   farside[0]: info: farside 0.1.0 is active on Open MPI 4.1.4; ranks: 4, nodes: 2, routes: mapped,fabric,
//                     provider: tcp, device: eth0, checks: on          (one line)
//
// Ranks, nodes and routes are those of this window, as rank 0 reaches the others. Provider and device are "none" if
// rank 0 needs no libfabric in it. Thread safety: any thread. Cost: one load without FARSIDE_LOG=info.
#pragma once

#include <cstddef>

#include "transport/base/settings.hpp"

namespace farside::pmpi {

class Window;

void announce_first_window(const Window& window, std::size_t nodes, Check check);

}  // namespace farside::pmpi
