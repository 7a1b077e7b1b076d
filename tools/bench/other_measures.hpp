// SPDX-License-Identifier: BSD-3-Clause
// Measures of another shape than those of measures.cpp. Each is collective over the ranks of `pair`.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// All ranks work at the same time, for `sample_seconds` in several rounds; each round is a sample (crowd.cpp).
// contention: each rank locks the window of rank 0 exclusively, puts, and unlocks; if info.x is 1, only rank 1 does.
// The figure is the mean time over the ranks other than rank 0.
Outcome measure_contention(const MeasureInfo& info, const Pair& crowd, const Options& options);
// rate: each rank puts 8 bytes to the next rank, 64 times per flush; if info.x is 1, only rank 0 does. The figure is
// the number of puts per second of all ranks.
Outcome measure_rate(const MeasureInfo& info, const Pair& crowd, const Options& options);

// Several threads of the origin use one window at the same time, each its own word: put and flush, or fetch_and_op and
// flush. The figure is the number of operations per second of all threads. If MPI was not initialized with
// MPI_THREAD_MULTIPLE, the outcome is an error.
Outcome measure_threads(const MeasureInfo& info, const Pair& pair, const Options& options);

// The time from the creation of a window of two ranks until it is freed: 4096 bytes per rank, or dynamic, as info.name
// selects.
Outcome measure_window_creation(const MeasureInfo& info, const Pair& pair, const Options& options);

// The cost of an idle window: CPU time (us) or wake-ups, as info.name selects, of the process's other threads during a
// second in which the main threads of both ranks compute, after some operations in both directions. The figure is that
// of the rank with more.
Outcome measure_idle(const MeasureInfo& info, const Pair& pair, const Options& options);

}  // namespace farside::bench
