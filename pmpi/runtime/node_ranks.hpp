// SPDX-License-Identifier: BSD-3-Clause
// Finds the ranks of this job on this node that run without farside. The search needs no help of these ranks, because a
// rank without the library takes part in nothing that farside does. The launcher gives each rank its number in the
// environment, and the kernel shows environment and mapped files of the other processes of a user (proc(5)).
//
//   ranks       the children of this process's parent, the launcher, with the number of a rank of the same job
//   verdict     a process that has mapped an MPI library, and farside or not. A rank that has left MPI_Init has mapped
//               what it preloads, so the verdict does not depend on time
//
// A rank that cannot be seen (other users, PID namespaces, a launcher without such numbers, a script that waits for the
// rank) gets no verdict. Thread safety: any thread. Cost: some 10 us per rank of the node that names farside in
// LD_PRELOAD, 0.2 ms per other one.
#pragma once

#include <string>
#include <vector>

namespace farside::pmpi {

// Ranks in MPI_COMM_WORLD, ascending.
struct NodeRanks {
  std::vector<int> with;  // includes this process
  std::vector<int> without;
};

// The inputs of the search: they are the same for all ranks of the job, or are those of the calling process. Tests pass
// other values.
struct NodeView {
  std::string proc = "/proc";
  int self = 0;         // the process's own id
  int launcher = 0;     // that of its parent
  std::string library;  // the file name of farside's library
  // The environment variables with the rank, that of the runtime's own launcher first.
  std::vector<std::string> rank_variables;
  static NodeView of_this_process();
};

// The file name of farside's library in this process; empty if it is unknown.
std::string own_file_name();

// `rank`: this process's rank in MPI_COMM_WORLD. If the environment says another one, there are no verdicts.
NodeRanks find_node_ranks(const NodeView& view, int rank);

}  // namespace farside::pmpi
