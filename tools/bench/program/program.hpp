// SPDX-License-Identifier: BSD-3-Clause
// The measures: plain MPI-3 one-sided programs, most of them between two ranks, and measures without MPI to compare
// them with. Those with MPI also check that the data arrived.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "tools/bench/program/output.hpp"

namespace farside::bench {

struct Pair {  // the measuring ranks: two, or MeasureInfo::ranks
  MPI_Comm comm;
  bool origin;  // rank 0 of comm; of two, rank 1 is the target
};

struct Outcome {
  std::vector<double> values;  // in the measure's unit; at the origin only
  double preempted = 0;        // involuntary context switches of both ranks, per operation
  std::string wrong;           // the error found in the data; empty if none; at the origin only
};

// Collective: returns what `root` has; T is a plain type.
template <class T>
T of_rank(int root, T value, MPI_Comm comm) {
  MPI_Bcast(&value, sizeof value, MPI_BYTE, root, comm);
  return value;
}

// The size of the operations, for groups of measures in which it varies.
inline std::size_t bytes_of(const MeasureInfo& info) { return info.x > 0 ? static_cast<std::size_t>(info.x) : 8; }

// Converts seconds per operation, of `bytes` each, to the unit of a measure of latency or bandwidth.
inline std::vector<double> in_unit(const MeasureInfo& info, std::size_t bytes, std::vector<double> seconds) {
  for (double& value : seconds)
    value = info.unit == Unit::kMegabytes ? static_cast<double>(bytes) * 1e-6 / value : value * 1e6;
  return seconds;
}

// Runs one measure. Collective over its ranks, which are `pair`. An MPI error ends the program through the runtime's
// default handler, as in a user's program.
using Function = Outcome (*)(const MeasureInfo& info, const Pair& pair, const Options& options);

// The function of measures, by their name without what the target does meanwhile, by their group ("threads" for all
// that need threads), or by their name without its end, such as a size. Each file of this folder registers its own by
// objects with static storage.
struct Registered {
  Registered(std::string_view name, Function function);
};
Outcome run_measure(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench
