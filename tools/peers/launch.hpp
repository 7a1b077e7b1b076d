// SPDX-License-Identifier: BSD-3-Clause
// How `farside info` and `farside doctor` start farside-peers-RUNTIME on several ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/common/child.hpp"
#include "tools/common/runtime.hpp"
#include "transport/base/result.hpp"

namespace farside::tools {

// The variables in which launchers pass the number of the rank and of all ranks. In a batch job, SLURM_STEP_NUM_TASKS
// is set only for processes that srun has started. srun also starts the helpers of other launchers, so the variables of
// those launchers come first. (Inline, for programs without farside's libraries.)
struct RankVariables {
  const char* rank;
  const char* ranks;
};
inline constexpr auto kRankVariables = std::to_array<RankVariables>({{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                     {"PMI_RANK", "PMI_SIZE"},
                                                                     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}});

inline int number_in(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? std::atoi(value) : 0;
}

// Returns the variables that are set; null without a launcher.
inline const RankVariables* rank_variables() {
  const auto* found =
      std::ranges::find_if(kRankVariables, [](const RankVariables& one) { return number_in(one.ranks) > 0; });
  return found == kRankVariables.end() ? nullptr : found;
}

// The number of this rank and of all ranks; 0 and 1 without a launcher.
inline int launched_rank() { return rank_variables() != nullptr ? number_in(rank_variables()->rank) : 0; }
inline int launched_ranks() { return rank_variables() != nullptr ? number_in(rank_variables()->ranks) : 1; }

// Whether this process is one of several ranks that such a launcher has started.
inline bool under_launcher() { return launched_ranks() > 1; }

struct PeersRequest {
  std::string task;      // the first word of the program: info, doctor
  std::string hosts;     // a,b: by mpirun; empty: on this machine
  std::string launcher;  // starts the ranks by this command line instead; empty: by mpirun
  std::vector<std::string> launcher_options;
  std::string runtime;  // empty: that of the launcher, or the first with a launcher and the program
  int ranks = 0;        // the number of ranks for mpirun; 0: ranks_per_host on each host
  int ranks_per_host = 1;
  bool preload = false;                // whether the ranks get farside's library, as those of `farside run` do
  Variables variables;                 // further variables for the ranks
  std::vector<std::string> arguments;  // further words for the program

  // Whether the ranks are those of the launcher that has started this process. Hosts or a launcher that the user names
  // take precedence, for instance in a shell that srun has started.
  bool in_place() const { return under_launcher() && hosts.empty() && launcher.empty(); }
};

// The runtimes for which the program may exist: openmpi and mpich.
std::vector<std::string> peers_runtimes();

struct PeersLaunch {
  Runtime runtime;
  std::vector<std::string> words;  // the command line; under a launcher the program alone
  Environment environment;         // of the first word
};

// Returns how the program is started. The error says what is missing.
Result<PeersLaunch> launch_of_peers(const PeersRequest& request, const std::string& library_folder);

}  // namespace farside::tools
