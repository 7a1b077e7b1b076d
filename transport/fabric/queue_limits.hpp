// SPDX-License-Identifier: BSD-3-Clause
// QueueLimits: limits of what an endpoint has under way, so that its queues never overflow. An adapter's completion
// queue is unusable after an overflow, and libfabric has had no credits for it since 1.19 (fi_verbs(7)). A message for
// which the receiver has no buffer is refused (RNR) and repeated after a pause. Over TCP the provider's queues grow
// with the operations towards a peer that takes no data: about 1 KiB for each. The kernel's flow control holds messages
// back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/operations_under_way.hpp"

namespace farside {

struct QueueLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t completions = 0;            // entries of the completion queue; 0: libfabric's default
  std::size_t runs = 0;                   // runs of writes under way (operations_under_way.hpp)
  std::size_t answers = kNone;            // replies and probes that the provider has
  std::size_t requests_per_peer = kNone;  // messages to one peer that await a reply
  std::size_t operations_per_peer = kNone;  // of this process, under way to one peer
  std::size_t first_receives = 32;        // buffers for messages of all peers
  std::size_t receives_per_peer = 0;      // as many more for each connection,
  std::size_t most_receives = 32;         // up to this number

  constexpr std::size_t receives(std::size_t connections) const {
    return std::min(first_receives + receives_per_peer * connections, most_receives);
  }
};

// A peer sends at most `requests_per_peer` requests and as many replies. `first_receives` are the buffers for probes
// and for DISCONNECT. With more than 252 connections there are fewer buffers, and the pause after a refused message is
// the flow control. The operations of this process are limited by LocalMemory and by the number of runs: each write of
// a run needs an entry, the empty one that may end it included.
constexpr QueueLimits queue_limits(bool adapter) {
  // Over TCP most messages go through rings, and others wait in the socket for a buffer. More buffers at the beginning
  // would delay the first window, since each touches a page of memory.
  if (!adapter) return {.operations_per_peer = 2048, .first_receives = 4, .receives_per_peer = 4};
  constexpr QueueLimits limits{.completions = 8192,
                               .runs = 128,
                               .answers = 512,
                               .requests_per_peer = 4,
                               .receives_per_peer = 8,
                               .most_receives = 2048};
  static_assert(limits.runs * OperationsUnderWay::kLongestRun + LocalMemory::kMostOwn + LocalMemory::kMostLarge +
                    limits.answers + limits.most_receives <=
                limits.completions);
  static_assert(2 * limits.requests_per_peer <= limits.receives_per_peer);
  return limits;
}

}  // namespace farside
