// SPDX-License-Identifier: BSD-3-Clause
// What farside takes from the runtime at the first window of the process, and gives back before the runtime finalizes.
#pragma once

#include <mpi.h>

#include "pmpi/runtime/sessions.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

// Collective over nobody, but makes a communicator: called only while a window is being made, where the runtime
// would make one as well. Also reads the settings.
Status start_runtime();

// This process alone, errors returned: for questions to the runtime that may fail. Only after start_runtime().
MPI_Comm own_communicator();

// This process in MPI_COMM_WORLD or, where a program has sessions only, among the processes of mpi://WORLD.
int process_rank();

// Whether it was started by MPI_Comm_spawn, and so shares its rank with a process that was not. Only after start_runtime().
bool was_spawned();

// To be called before: what was taken is given back. If other sessions or the world go on, it is taken from them.
void world_ends();
// Whether several threads may be in MPI at once: by the world model, or by a session that has begun.
bool is_threaded();
#if FARSIDE_HAS_SESSIONS
// To be called after. If several threads may be in MPI at once by it and could not before, all windows expect that.
void session_begins(MPI_Session session);
// Whether MPI ends with this session, which has not ended yet (MPI 4.0 section 11.3).
bool is_last(MPI_Session session);
void session_ends(MPI_Session session);
#endif

}  // namespace farside::pmpi
