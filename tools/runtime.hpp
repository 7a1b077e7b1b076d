// SPDX-License-Identifier: BSD-3-Clause
// The MPI runtimes of this machine and of this build of farside: for each the launcher, the library to preload and
// the benchmark program.
#pragma once

#include <string>
#include <vector>

#include "tools/child.hpp"

namespace farside::tools {

struct Runtime {
  std::string name;         // openmpi, mpich, mpi_abi (the standard's binary interface, which both may have)
  std::string title;        // Open MPI, MPICH
  std::string launched_as;  // openmpi or mpich: whose launcher it has
  std::string launcher;     // absolute path of its mpirun
  std::string benchmark;    // absolute path of farside-bench-NAME; empty if there is none
  std::string library;      // absolute path of libfarside-NAME.so or .so.N; empty if there is none
};

// Returns the folder of this program.
std::string own_folder();

// Returns the default folder of the libraries: lib beside the folder of this program, or where they were installed.
std::string default_library_folder();
// The help of the option --lib-dir.
constexpr const char* kLibraryFolderHelp =
    "where libfarside-RUNTIME.so are (default: lib beside this command's folder, or where they were installed)";

// Returns the names of all runtimes that farside knows.
std::vector<std::string> runtime_names();

// Returns one runtime by its name; its launcher or library is empty if there is none. `mpi_library`, if not empty, is
// the path of the runtime's own library: a launcher in the bin of its prefix is preferred. For mpi_abi it says whose
// launcher is needed; without, there is none.
Runtime find_runtime(const std::string& name, const std::string& library_folder, const std::string& mpi_library = {});

// Returns the launcher's version text, for instance "Open MPI 4.1.4"; empty if it prints none.
std::string launcher_version(const Runtime& runtime);

// A runtime, or a variant of it, that a command passes over.
struct LeftOut {
  std::string runtime;
  std::string variant;  // empty: the whole runtime
  std::string reason;
};

// Returns the runtimes that have a launcher, in a fixed order, without mpi_abi. For each other runtime, `missing` says
// what was searched.
std::vector<Runtime> find_runtimes(const std::string& library_folder, std::vector<LeftOut>& missing);

// Sets what the launcher needs in its environment: Open MPI refuses root unless two variables allow it.
void allow_root(const Runtime& runtime, Environment& environment);

// Returns whether the runtime has this implementation of windows (Open MPI's framework osc), as its ompi_info says;
// true if there is no ompi_info beside the launcher.
bool has_component(const Runtime& runtime, const std::string& component);

}  // namespace farside::tools
