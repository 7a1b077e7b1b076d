// SPDX-License-Identifier: BSD-3-Clause
// The command line of the benchmark program. Uses no MPI.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/catalogue.hpp"

namespace farside::bench {

enum class WindowKind { kAllocate, kCreate };

struct Options {
  std::vector<const MeasureInfo*> measures;  // in the catalogue's order; main() skips those that need more ranks
  WindowKind window = WindowKind::kAllocate;
  std::string provider = "tcp;ofi_rxm";  // of bare libfabric
  double compute_seconds = 2.0;          // time for which a computing target stays out of MPI
  double sleep_seconds = 0.5;            // the same for a sleeping target
  double sample_seconds = 0.2;           // time of all samples of one measure
};

// Reads the command line. If the program has to end at once (--help, --list, an error), the result is empty. If
// `speaks` is true, the function prints the text and sets `exit_code`. Otherwise the exit code is 0: a launcher ends
// all ranks when one fails, perhaps before the rank that prints has printed.
std::optional<Options> read_options(int argc, char** argv, bool speaks, int& exit_code);

}  // namespace farside::bench
