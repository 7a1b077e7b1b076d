// SPDX-License-Identifier: BSD-3-Clause
// Measures in which all ranks of `crowd` work at the same time, for `sample_seconds` in several rounds. Each round is
// a sample. Collective over the crowd.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Each rank locks the window of rank 0 exclusively, puts, and unlocks; if info.x is 1, only rank 1 does. The figure
// is the mean time over the ranks other than rank 0.
Outcome measure_contention(const MeasureInfo& info, const Pair& crowd, const Options& options);

// Each rank puts 8 bytes to the next rank, 64 times per flush; if info.x is 1, only rank 0 does. The figure is the
// number of puts per second of all ranks.
Outcome measure_rate(const MeasureInfo& info, const Pair& crowd, const Options& options);

}  // namespace farside::bench
