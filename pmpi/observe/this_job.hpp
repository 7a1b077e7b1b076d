// SPDX-License-Identifier: BSD-3-Clause
// The description of the launch in the files of this process (transport/base/job.hpp). Thread safety: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <mpi.h>

#include "transport/base/job.hpp"

namespace farside::pmpi {

// Asks the runtime for rank and number of processes, once. Does nothing without statistics and trace. To be called by
// the first window, and before the files are written; after RuntimeResources::start(), if that is called.
void query_launch();

// To be called by all ranks of a communicator after a handshake, with the random bits that they have agreed on. The
// lowest bits of the handshakes that include all processes identify the launch: threads make such handshakes in
// different orders on different ranks. Without statistics and trace it does nothing; else it compares two groups, and
// communicates nothing.
void note_agreement(MPI_Comm communicator, std::uint64_t bits);

// Returns the CPUs that the process may use, as the kernel writes them: "0-3,8"; empty if unknown.
std::string own_cpus();

// Returns the description for a file that is written now. Calls no function of the runtime.
Job this_job();

// The files that each rank writes: PREFIX.RANK.SUFFIX, of a spawned process PREFIX.spawned-PID.RANK.SUFFIX. A file
// appears whole or not at all, because it is renamed when it is complete. Thread safety: any, after query_launch()
// (this_job.hpp).

// Returns whether the file was written, and else logs a warning that names `setting`.
bool write_rank_file(const char* setting, const std::string& prefix, std::string_view suffix,
                     std::span<const char> bytes);

}  // namespace farside::pmpi
