// SPDX-License-Identifier: BSD-3-Clause
// Command lines that start ranks: by the mpirun of their runtime, or by a launcher that the user names, such as srun.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/runtime.hpp"
#include "transport/base/result.hpp"

namespace farside::tools {

using Variables = std::vector<std::pair<std::string, std::string>>;

// The help of an option --launcher.
constexpr const char* kLauncherHelp = "start the ranks by this instead of mpirun, {n} is their number: 'srun -n {n}'";

struct Launch {
  int ranks = 2;
  std::string launcher;              // a command line, in which {n} is the number of ranks; empty: the runtime's mpirun
  std::string hosts;                 // in mpirun's own form; empty: this machine, or up to the launcher
  bool in_turn = false;              // rank r on the r-th node, and again from the first; with a launcher up to it
  std::vector<std::string> options;  // further words for mpirun or the launcher
};

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
