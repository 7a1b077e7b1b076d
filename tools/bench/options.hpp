// SPDX-License-Identifier: BSD-3-Clause
// The command line of the benchmark program. No MPI here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/catalogue.hpp"

namespace farside::bench {

enum class WindowKind { kAllocate, kCreate };

struct Options {
  std::vector<const MeasureInfo*>
      measures;  // in the catalogue's order; main() leaves those out that need more ranks
  WindowKind window = WindowKind::kAllocate;
  std::string provider = "tcp;ofi_rxm";  // of bare libfabric
  double compute_seconds = 2.0;          // how long a computing target stays out of MPI
  double sleep_seconds = 0.5;            // how long a sleeping target does
  double sample_seconds = 0.2;           // how long the samples of one measure take together
};

// Reads the command line. If the program has to end at once (--help, --list, an error), that has been printed
// (if `speaks`), and `exit_code` is set and the result empty.
std::optional<Options> read_options(int argc, char** argv, bool speaks, int& exit_code);

}  // namespace farside::bench
