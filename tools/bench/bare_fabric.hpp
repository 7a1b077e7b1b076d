// SPDX-License-Identifier: BSD-3-Clause
// Bare round trips over libfabric, for comparison with MPI calls over the same provider. An operation is over when
// the target has executed it; the origin issues it and polls. At a target whose main thread sleeps or computes,
// another thread sleeps in poll(2) on the completion queue and executes arrivals. At a target that waits in MPI in
// the corresponding measure, the main thread polls.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

enum class BareFabric {
  kWrite,        // one write of `bytes`
  kRead,         // one read of `bytes`
  kFetchAdd,     // of 8 bytes
  kCompareSwap,  // of 8 bytes
  kWrites64,     // 64 writes of 8 bytes, all under way at once; `bytes` is 64 * 8
};

// Collective over the pair. `bytes`: a multiple of 8.
Outcome measure_bare_fabric(BareFabric what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

}  // namespace farside::bench
