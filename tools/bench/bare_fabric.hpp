// SPDX-License-Identifier: BSD-3-Clause
// Bare round trips over libfabric, to compare with what MPI calls cost over the same provider: an operation
// that the target has executed when it is over, issued and waited for by polling. At the target a thread sleeps in
// poll(2) on its completion queue and executes what arrives, as at any target that has better to do; its main thread
// does what it does in the measures of MPI: waits in MPI_Barrier, sleeps or computes.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

enum class BareFabric {
  kWrite,        // one write of `bytes`
  kRead,         // one read of `bytes`
  kFetchAdd,     // of 8 bytes
  kCompareSwap,  // of 8 bytes
  kWrites64,     // 64 writes of 8 bytes, all under way together; `bytes` is 64 * 8
};

// Collective over the pair. `bytes`: a multiple of 8.
Outcome measure_bare_fabric(BareFabric what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

}  // namespace farside::bench
