// SPDX-License-Identifier: BSD-3-Clause
// The files that each rank writes: FARSIDE_STATS, the statistics as JSON in PREFIX.RANK.json (pmpi/observation.md has
// the format), and FARSIDE_TRACE, the records in PREFIX.RANK.trace (transport/base/trace.hpp). They are written at the
// end of MPI, and on signals (files_on_signal.cpp). Thread safety: any thread, also while others count.
#pragma once

#include <cstdint>
#include <string>

#include <mpi.h>

#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"

namespace farside::pmpi {

// To be called when a window is made, after RuntimeResources::start(): with the first one begin the reported time, the
// call sites and the handlers of signals.
void begin_observation();
// To be called before the runtime finalizes: writes the files. A failure is logged as a warning.
void end_observation();

// To be called by all ranks of a communicator after a handshake, with the random bits that they have agreed on. The
// lowest bits of the handshakes that include all processes identify the launch: threads make such handshakes in
// different orders on different ranks. It compares two groups, and communicates nothing.
void note_agreement(MPI_Comm communicator, std::uint64_t bits);

// Collective over ranks that all record a trace: finds the offsets between the clocks of nodes. (Processes of one node
// share one CLOCK_MONOTONIC.) The lowest rank of each clock compares its clock with rank 0's by 32 round trips of
// messages on a duplicated communicator. The shortest one gives the offset, with an uncertainty of half that trip. A
// round trip takes some 50 us; rank 0 answers one clock after the other. A failure of the runtime is a warning, and
// some offsets stay unknown.
void compare_clocks(MPI_Comm communicator);
// Returns a number that identifies the CLOCK_MONOTONIC of this process. All processes of one boot of one kernel and one
// time namespace have the same number.
std::uint64_t clock_id();

// Logs a line about a mistake of the program. With FARSIDE_TRACE it adds the line to the trace, as one of the first
// 100, and writes that, since the error may end the program.
void report(LogLevel level, const std::string& line);

// Whether the settings ask for a file.
bool writes_files();
// Write a file each, if the settings ask for it. They call no MPI.
void write_statistics();
void write_trace();
// Returns the description of the launch for a file that is written now.
Job this_job();

// Precondition: the settings ask for a file, and the launch is known (this_job()). Does nothing if the handlers are
// installed.
void begin_files_on_signal();
// To be called at the end of MPI, which writes the files itself. Restores the actions that the signals had before.
void end_files_on_signal();

}  // namespace farside::pmpi
