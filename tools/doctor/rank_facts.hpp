// SPDX-License-Identifier: BSD-3-Clause
// What `farside doctor` looks up in each rank before the runtime starts, and without any window:
//
//   host
//   farside          the version of the library in this process; empty: it is not loaded
//   library          its file
//   preload          the file of farside in LD_PRELOAD; empty: there is none
//   preload_exists
//   peers            the version of farside-peers
//   mpi              the version of the MPI library: Open MPI v4.1.4
//   launched         the number of ranks that the launcher has passed in the environment
//   limits[], routes[]    as those of `farside info` (info/info.hpp); the routes mapped and cma only
//   settings         the FARSIDE_* that are set
//   bad_setting      the error of a setting that is not allowed; empty: there is none
//   unknown_settings[]
//   clock            source (clock source of the kernel), counter (whether traces take the time-stamp counter)
//
// Tries the routes in child processes, so the process has one thread only, and has called prepare_for_children().
// Cost: a few milliseconds.
#pragma once

#include <string>

#include "tools/json.hpp"

namespace farside::tools {

Json rank_facts();

// The first words of MPI_Get_library_version: "Open MPI v4.1.4", "MPICH 4.0.2".
std::string mpi_version(const std::string& library_version);

}  // namespace farside::tools
