// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_STATS: the statistics of this rank as one JSON file (pmpi/observation.md has the format).
#pragma once

namespace farside::pmpi {

// Writes PREFIX.RANK.json if FARSIDE_STATS is set. Called before the runtime finalizes, and on signals
// (files_on_signal.hpp): any thread, also while others count; it calls no MPI. A failure is logged as a warning.
// Precondition: query_launch() (this_job.hpp).
void write_statistics();

// Starts the reported time at its first call, when the first window is made. Any thread.
void begin_statistics();

// FARSIDE_TRACE: the records of this rank as one file (transport/base/trace.hpp).

// Writes PREFIX.RANK.trace if FARSIDE_TRACE is set. Called before the runtime finalizes, and on signals
// (files_on_signal.hpp): any thread, also while others record; it calls no MPI. A failure is logged as a warning.
// Precondition: query_launch() (this_job.hpp).
void write_trace();

}  // namespace farside::pmpi
