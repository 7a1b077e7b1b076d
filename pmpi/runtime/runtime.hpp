// SPDX-License-Identifier: BSD-3-Clause
// The MPI runtime behind farside: its own version (PMPI_X) of every call that farside interposes or uses. farside calls
// the runtime by this table only and is not linked to the runtime's functions: so one library serves all runtimes with
// one binary interface, whatever their file is called and whichever calls they lack. Thread safety: any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <mpi.h>

namespace farside::pmpi {

// Whether mpi.h is for the standard's binary interface (MPI 5.0 section 20) instead of a runtime's own. (In its own
// mpi.h, Open MPI 6 has MPI_ABI_VERSION -1.)
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
#define FARSIDE_IS_FOR_MPI_ABI 1
#else
#define FARSIDE_IS_FOR_MPI_ABI 0
#endif

// The runtime for which this library is built, as in program_runtime.hpp.
#if defined(OPEN_MPI)
inline constexpr std::string_view kOwnRuntime = "openmpi";
#elif FARSIDE_IS_FOR_MPI_ABI
inline constexpr std::string_view kOwnRuntime = "mpi_abi";
#else
inline constexpr std::string_view kOwnRuntime = "mpich";
#endif

struct Runtime {
#define FARSIDE_CALL(name) decltype(&MPI_##name) name;
#define FARSIDE_USED(name) FARSIDE_CALL(name)
#include "pmpi/runtime/calls.def"
  // Whether the runtime has MPI_Type_get_envelope_c and MPI_Type_get_contents_c (MPI 4.0).
  bool large_datatypes;
};

// The functions of tools behind farside that get a call first; null for all other calls. A tool is a library with its
// own MPI_X, which calls PMPI_X (MPI 4.0 section 15.2). The program's call reaches farside's MPI_X, which calls the
// tool's; the PMPI_X that this one calls is farside's, which carries the call out. So the tool gets each call once.
extern Runtime tools_behind;
// Finds tools behind farside, and returns whether there are any that were not known. Other threads must not call MPI.
bool find_tools();
// Returns the function `first` of a tool behind farside; null if there is none. `original`: the runtime's second name
// of the function; `called`: functions of farside, to one of which the tool passes the call. A tool that finds the
// runtime's functions by dlsym(3) would go around farside, so it is left out, and the log says so once.
void* find_tool(const char* first, const char* original, std::initializer_list<const char*> called);

// Returns name and version of the runtime, such as "Open MPI 4.1.4" or "MPICH 4.0.2".
std::string runtime_name();

// Returns whether the runtime is Open MPI; known at compile time, except for the library for the MPI ABI.
bool is_open_mpi();
// Returns the major version of Open MPI; 0 for other runtimes.
int open_mpi_version();

// Returns the function of this name that is next behind farside in the search order or, if there is none, in the MPI
// library that the process has loaded by dlopen(3), as Python does. Aborts the process with a message if there is none.
void* find_behind(const char* name);
// The same, but returns null if there is none.
void* find_behind_if_there(const char* name);

// Resolves the functions at the first use. Aborts the process with a message if there is no runtime behind farside. A
// call that the runtime lacks, which no program that is linked to it can make, aborts the process when it is made.
const Runtime& runtime();

// Returns the value of a key; an empty string if the key is missing, or `info` is MPI_INFO_NULL.
std::string value_of(MPI_Info info, const char* key);

}  // namespace farside::pmpi
