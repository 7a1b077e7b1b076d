// SPDX-License-Identifier: BSD-3-Clause
// Bare round trips over libfabric, to compare with what MPI calls cost over the same provider: an operation that the
// target has executed when it is over, issued and waited for by polling, while the target sleeps in poll(2) on its
// completion queue and executes what arrives, as any target must that has better to do.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

enum class BareOperation { kWrite, kFetchAdd };  // of 8 bytes

// Collective over the pair.
Outcome measure_bare(BareOperation operation, const Pair& pair, const Options& options);

}  // namespace farside::bench
