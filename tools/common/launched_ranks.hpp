// SPDX-License-Identifier: BSD-3-Clause
// The rank of this process and the number of ranks, as given by a launcher.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>

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

}  // namespace farside::tools
