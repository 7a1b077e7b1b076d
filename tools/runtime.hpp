// SPDX-License-Identifier: BSD-3-Clause
// Which MPI runtimes this machine and this build of farside have: the launcher, the library to preload and
// the benchmark program of each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/environment.hpp"

namespace farside::tools {

struct Runtime {
  std::string name;       // openmpi, mpich
  std::string title;      // Open MPI, MPICH
  std::string launcher;   // absolute path of its mpirun
  std::string benchmark;  // absolute path of farside-bench-NAME; empty if there is none
  std::string library;    // absolute path of libfarside-NAME.so or .so.N; empty if there is none
};

// The folder this program lies in.
std::string own_folder();

// Where the libraries are if the user does not say: lib beside the folder of this program, or where they were
// installed.
std::string default_library_folder();

// All runtimes that farside knows, by name.
std::vector<std::string> runtime_names();

// One of them by its name; without a launcher or a library where there is none. `mpi_library`, if not empty,
// is the path of the runtime's own library: a launcher in the bin of its prefix goes before others.
Runtime find_runtime(const std::string& name, const std::string& library_folder,
                     const std::string& mpi_library = {});

// What its launcher says of itself: "Open MPI 4.1.4"; empty if it does not say.
std::string launcher_version(const Runtime& runtime);

// The runtimes that have a launcher, in a fixed order. `missing` gets a line for each other that says what
// was looked for.
std::vector<Runtime> find_runtimes(const std::string& library_folder, std::vector<std::string>& missing);

// What the launcher needs in its environment: Open MPI refuses root unless it is told twice.
void allow_root(const Runtime& runtime, Environment& environment);

// The command line that starts `ranks` ranks of a program on this machine, without the program.
std::vector<std::string> local_launch(const Runtime& runtime, int ranks);

// A value for LD_PRELOAD: `old` with farside's library in front, or (empty library) with none of farside's.
std::string preload_list(const std::string& old, const std::string& library);

// The words of a launcher's command line that set variables for its ranks, on whatever machine. They hold for
// all programs with MPICH, and with Open MPI for the programs up to the next ":" word.
using Variables = std::vector<std::pair<std::string, std::string>>;
std::vector<std::string> words_for_ranks(const Runtime& runtime, const Variables& variables);

}  // namespace farside::tools
