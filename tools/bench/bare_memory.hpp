// SPDX-License-Identifier: BSD-3-Clause
// What the memory of the node itself costs, to compare with what MPI calls cost on the mapped route: no
// lock-put-unlock that others may contend for does with less than the atomics here, and no
// post-start-complete-wait with less than the two notices that its ranks wait for one after the other.
#pragma once

#include "tools/bench/measures.hpp"

namespace farside::bench {

enum class BareMemory {
  kLock,      // a fetch-add, a store and a fetch-add on memory of the peer, which leaves it alone
  kExchange,  // a fetch-add on a word that the peer looks for, and its answer
  kEcho,      // the same, but the answer is by a thread of the peer that sleeps until it is asked (futex(2))
  kCopy,      // memcpy(3) of `bytes` to memory that both map
  kVmWrite,   // process_vm_writev(2) of `bytes` to private memory of the peer
  kVmRead,    // process_vm_readv(2) of `bytes` from there
};

// Collective over the pair, which has to be on one node.
Outcome measure_bare_memory(BareMemory what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

}  // namespace farside::bench
