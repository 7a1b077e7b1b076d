// SPDX-License-Identifier: BSD-3-Clause
// The MPI runtime behind farside: its own version of every call that farside interposes. farside calls all other
// functions as PMPI_X directly. Thread safety: any thread.
#pragma once

#include <string>

#include <mpi.h>

#include "pmpi/runtime/optional_calls.hpp"

namespace farside::pmpi {

struct Runtime {
#define FARSIDE_CALL(name) decltype(&MPI_##name) name;
#include "pmpi/runtime/calls.def"
};

// Returns name and version of the runtime, such as "Open MPI 4.1.4" or "MPICH 4.0.2".
std::string runtime_name();

// Returns the function of this name that is next behind farside in the search order. Aborts the process with a message
// if there is none.
void* find_behind(const char* name);

// Resolves the functions at the first use, by dlsym(RTLD_NEXT, "PMPI_X"). Aborts the process with a message if no
// runtime is behind farside in the search order.
const Runtime& runtime();

}  // namespace farside::pmpi
