// SPDX-License-Identifier: BSD-3-Clause
// The measures themselves: plain MPI-3 one-sided programs, most between two ranks, each of which also checks
// that the data arrived.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

#include "tools/bench/options.hpp"

namespace farside::bench {

struct Pair {  // the ranks that measure: two, or as many as MeasureInfo::ranks says
  MPI_Comm comm;
  bool origin;  // rank 0 of comm; of two, rank 1 is the target
};

struct Outcome {
  std::vector<double> values;  // in the measure's unit; at the origin only
  double preempted = 0;        // how often the scheduler took a core from either rank, per operation
  std::string wrong;           // what was found wrong with the data, empty if nothing; at the origin only
};

// Seconds per operation, of `bytes` each, in the unit of a measure of latency or bandwidth.
inline std::vector<double> in_unit(const MeasureInfo& info, std::size_t bytes, std::vector<double> seconds) {
  for (double& value : seconds) {
    value = info.unit == Unit::kMegabytes ? static_cast<double>(bytes) * 1e-6 / value : value * 1e6;
  }
  return seconds;
}

// Runs one measure; collective over the pair. An MPI error ends the program through the runtime's default
// handler, as it would end a user's.
Outcome run_measure(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench
