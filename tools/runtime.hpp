// SPDX-License-Identifier: BSD-3-Clause
// Which MPI runtimes this machine and this build of farside have: the launcher, the library to preload and
// the benchmark program of each.
#pragma once

#include <string>
#include <vector>

#include "tools/environment.hpp"

namespace farside::tools {

struct Runtime {
  std::string name;       // openmpi, mpich
  std::string launcher;   // absolute path of its mpirun
  std::string benchmark;  // absolute path of farside-bench-NAME; empty if there is none
  std::string library;    // absolute path of libfarside-NAME.so; empty if there is none
};

// The folder this program lies in.
std::string own_folder();

// Where the libraries are if the user does not say: lib beside the folder of this program.
std::string default_library_folder();

// The runtimes with a launcher, in a fixed order. `missing` gets a line for each other that says what was
// looked for.
std::vector<Runtime> find_runtimes(const std::string& library_folder, std::vector<std::string>& missing);

// What the launcher needs in its environment: Open MPI refuses root unless it is told twice.
void allow_root(const Runtime& runtime, Environment& environment);

// The command line that starts `ranks` ranks of a program on this machine, without the program.
std::vector<std::string> local_launch(const Runtime& runtime, int ranks);

// LD_PRELOAD with farside's library in front, or (empty library) with none of farside's.
void set_preload(Environment& environment, const std::string& library);

}  // namespace farside::tools
