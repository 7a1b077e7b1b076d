// SPDX-License-Identifier: BSD-3-Clause
// The options of `farside bench`.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_driver/variant.hpp"

namespace farside::tools {

struct BenchSettings {
  bool demo = false;
  bool cluster = false;               // measure between nodes: other defaults, and the ranks in turn on the nodes
  std::vector<std::string> runtimes;  // empty: all
  std::vector<std::string> variants{"native", "node", "fabric"};  // of Open MPI's, those that it has
  std::string library_folder = default_library_folder();
  std::string json_file;  // empty: none; so are the next two
  std::string csv_file;
  std::string html_file;
  // Names, groups, "all"; empty: the default ones, with html_file also those of the plots.
  std::vector<std::string> measures;
  std::vector<std::string> skip;
  std::string window = "allocate";
  std::string provider = "tcp";
  double compute_seconds = 2;
  double timeout_seconds = 60;
  int rounds = 3;
  int ranks = 2;
  std::string launcher;  // a command line; empty: the runtime's mpirun
  std::string hosts;
  std::vector<std::string> launcher_options;
};

}  // namespace farside::tools
