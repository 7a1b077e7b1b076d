// SPDX-License-Identifier: BSD-3-Clause
// Measures in which all ranks of `crowd` work at the same time, for `sample_seconds` in a few rounds, each
// round a sample. Collective over the crowd.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Every rank locks the window of rank 0 exclusively, puts, and unlocks; where info.x is 1, rank 1 alone does. The
// figure is the mean of the times that this takes each of the ranks but rank 0 itself.
Outcome measure_contention(const MeasureInfo& info, const Pair& crowd, const Options& options);

// Every rank puts 8 bytes to the next rank, 64 times per flush; where info.x is 1, rank 0 alone does. The
// figure is the number of puts per second, of all ranks together.
Outcome measure_rate(const MeasureInfo& info, const Pair& crowd, const Options& options);

}  // namespace farside::bench
