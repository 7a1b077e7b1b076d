// SPDX-License-Identifier: BSD-3-Clause
// How `farside info` starts farside-peers-RUNTIME (peers.cpp) on several hosts.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace farside::tools {

struct PeersRequest {
  std::string hosts;     // a,b: by mpirun
  std::string launcher;  // or by this command line
  std::vector<std::string> launcher_options;
  std::string runtime;  // empty: that of the launcher, or the first with a launcher and the program
  bool json = false;
};

// Whether this process is one of several ranks that a launcher of Open MPI, MPICH or Slurm has started.
bool under_launcher();

// Returns the command line; sets request.runtime. Under a launcher it is the program alone. The error says what is
// missing.
Result<std::vector<std::string>> command_for_peers(PeersRequest& request, const std::string& library_folder);

}  // namespace farside::tools
