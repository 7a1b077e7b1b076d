// SPDX-License-Identifier: BSD-3-Clause
// Finds the ranks of this job on this node that run without farside. The search needs no help of these ranks, because a
// rank without the library takes part in nothing that farside does. The launcher gives each rank its number in the
// environment, and the kernel shows environment and mapped files of the other processes of a user (proc(5)).
//
//   launcher    the nearest ancestor whose environment does not have this process's rank: scripts may stand in between
//   ranks       its children with the number of a rank of the same job, and what these have started in turn
//   verdict     a process that has mapped an MPI library, and farside or not. A rank that has left MPI_Init has mapped
//               what it preloads, so the verdict does not depend on time
//
// A rank that cannot be seen (other users, PID namespaces, a launcher without such numbers) gets no verdict. Thread
// safety: any thread. Cost: some 10 us per rank of the node that names farside in LD_PRELOAD, 0.2 ms per other one.
#pragma once

#include <string>
#include <vector>

namespace farside::pmpi {

// Ranks in MPI_COMM_WORLD, ascending.
struct NodeRanks {
  std::vector<int> with;  // includes this process
  std::vector<int> without;
  bool complete = true;  // whether each rank that the launcher has started here got a verdict
};

// The inputs of the search: they are the same for all ranks of the job, or are those of the calling process. Tests pass
// other values.
struct NodeView {
  std::string proc = "/proc";
  int self = 0;         // the process's own id
  std::string library;  // the file name of farside's library
  // The environment variables with the rank, that of the runtime's own launcher first.
  std::vector<std::string> rank_variables;
  static NodeView of_this_process();
};

// `rank`: this process's rank in MPI_COMM_WORLD. If the environment says another one, there are no verdicts.
NodeRanks find_node_ranks(const NodeView& view, int rank);

}  // namespace farside::pmpi
