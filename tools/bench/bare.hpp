// SPDX-License-Identifier: BSD-3-Clause
// Measures without MPI, for comparison with MPI calls.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

// Bare round trips over libfabric, for comparison with MPI calls over the same provider. An operation is over when
// the target has executed it; the origin issues it and polls. At a target whose main thread sleeps or computes,
// another thread sleeps in poll(2) on the completion queue and executes arrivals. At a target that waits in MPI in
// the corresponding measure, the main thread polls.
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

// The cost of the node's memory itself, for comparison with MPI calls on the mapped route. An uncontended
// lock-put-unlock that other ranks could contend for needs at least these atomics. A post-start-complete-wait needs
// at least these two notifications, one after the other.
enum class BareMemory {
  kLock,      // a fetch-add, a store and a fetch-add on the peer's memory, without contention
  kExchange,  // a fetch-add on a word that the peer polls, and its answer
  kEcho,      // the same, answered by a thread of the peer that sleeps until then (futex(2))
  kCopy,      // memcpy(3) of `bytes` to memory that both map
  kVmWrite,   // process_vm_writev(2) of `bytes` to private memory of the peer
  kVmRead,    // process_vm_readv(2) of `bytes` from there
};

// Collective over the pair. Both ranks must be on one node.
Outcome measure_bare_memory(BareMemory what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

}  // namespace farside::bench
