// SPDX-License-Identifier: BSD-3-Clause
// The cost of the node's memory itself, for comparison with MPI calls on the mapped route. An uncontended
// lock-put-unlock that other ranks could contend for needs at least these atomics. A post-start-complete-wait needs
// at least these two notifications, one after the other.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

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
