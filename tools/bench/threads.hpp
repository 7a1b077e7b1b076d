// SPDX-License-Identifier: BSD-3-Clause
// Several threads of the origin use one window at the same time, each its own word: put and flush, or fetch_and_op
// and flush. The figure is the number of operations per second of all threads.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Collective over the pair. If MPI was not initialized with MPI_THREAD_MULTIPLE, the outcome is an error.
Outcome measure_threads(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench
