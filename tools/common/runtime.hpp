// SPDX-License-Identifier: BSD-3-Clause
// The MPI runtimes of this machine and of this build of farside: for each the launcher, the library to preload and
// the benchmark program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/common/child.hpp"
#include "transport/base/result.hpp"

namespace CLI {
class App;
}

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
    "folder of libfarside-RUNTIME.so (default: lib beside this command's folder, or the installed one)";

// Returns the names of all runtimes that farside knows.
std::vector<std::string> runtime_names();

// Returns one runtime by its name; its launcher or library is empty if there is none. `mpi_library`, if not empty, is
// the path of the runtime's own library: a launcher in the bin of its prefix is preferred. For mpi_abi it says whose
// launcher is needed; without, there is none.
Runtime find_runtime(const std::string& name, const std::string& library_folder, const std::string& mpi_library = {});

// Returns the launcher's version text, for instance "Open MPI 4.1.4"; empty if it prints none.
std::string launcher_version(const Runtime& runtime);

// A runtime that a command passes over.
struct LeftOut {
  std::string runtime, reason;
};

// Returns the runtimes that have a launcher, in a fixed order, without mpi_abi: those in `wanted`, or all if it is
// empty. For each other runtime, `missing` says what was searched.
std::vector<Runtime> find_runtimes(const std::string& library_folder, const std::vector<std::string>& wanted,
                                   std::vector<LeftOut>& missing);

// Sets what the launcher needs in its environment: Open MPI refuses root unless two variables allow it.
void allow_root(const Runtime& runtime, Environment& environment);

// Command lines that start ranks: by the mpirun of their runtime, or by a launcher that the user names, such as srun.
using Variables = std::vector<std::pair<std::string, std::string>>;

// Returns what ranks need of this process's environment, which not every launcher takes to other nodes: the settings
// of farside that are set, and those of libfabric (FI_*).
Variables users_variables();

// The help of an option --launcher.
constexpr const char* kLauncherHelp = "launcher command; {n} expands to the number of ranks: 'srun -n {n}'";

struct Launch {
  int ranks = 2;
  std::string launcher;              // a command line, in which {n} is the number of ranks; empty: the runtime's mpirun
  std::string hosts;                 // in mpirun's own form; empty: this machine, or up to the launcher
  bool in_turn = false;              // rank r on the r-th node, and again from the first; with a launcher up to it
  std::vector<std::string> options;  // further words for mpirun or the launcher
};

// The options --lib-dir, --hosts, --launcher and --launcher-option.
void add_launch_options(CLI::App& command, Launch& launch, std::string& library_folder);

// Returns the words that start ranks with these variables, up to the program.
std::vector<std::string> launch_words(const Runtime& runtime, const Launch& launch, const Variables& variables);

// Returns the words of launch.launcher and launch.options that start ranks with these variables, up to the program.
// env(1) sets the variables: it works under any launcher, whose own option for this is unknown.
std::vector<std::string> launcher_words(const Launch& launch, const Variables& variables);

// Returns the words of mpirun's command line that set variables for its ranks on all nodes. With MPICH they apply to
// all programs, with Open MPI to the programs up to the next ":".
std::vector<std::string> words_for_ranks(const Runtime& runtime, const Variables& variables);

// Returns an error, with a remedy, if there is no library to preload, or its path cannot stand in LD_PRELOAD.
Status check_library(const Runtime& runtime, const std::string& library_folder);

// Returns a value for LD_PRELOAD: `old` with farside's library behind the others, which may be tools for MPI, but in
// front of an MPI library; or (empty library) without farside's libraries. In front is what comes_first(): `needed`, if
// it is not empty and `old` names no version of it, then what `old` names.
std::string preload_list(const std::string& old, const std::string& library, const std::string& needed = {});

}  // namespace farside::tools
