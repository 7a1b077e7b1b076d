// SPDX-License-Identifier: BSD-3-Clause
// How `farside info` and `farside doctor` start farside-peers-RUNTIME (peers.cpp) on several ranks.
#pragma once

#include <string>
#include <vector>

#include "tools/child.hpp"
#include "tools/hosts/launched.hpp"
#include "tools/launch.hpp"
#include "transport/base/result.hpp"

namespace farside::tools {

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
