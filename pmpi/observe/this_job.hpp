// SPDX-License-Identifier: BSD-3-Clause
// The description of the launch in the files of this process (transport/base/job.hpp). Thread safety: any thread.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace farside::pmpi
