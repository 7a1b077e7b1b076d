// SPDX-License-Identifier: BSD-3-Clause
// Receives: the buffers for messages that arrive, in the one queue of receives that all endpoints of a process share.
// Their number follows the connections (queue_limits.hpp).
//
// Not thread-safe: Fabric's mutex guards it. Errors: kNoMemory if buffers cannot be registered, kNoRoute if the
// provider does not take the first ones. Cost: fi_recv for each buffer. Memory: a message (about 8.3 KiB) per buffer;
// over an adapter 32 buffers and 8 per connected peer, up to 2,048 in all, else 4 and 4 per connected peer, up to 32.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/base/result.hpp"
#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/queue_limits.hpp"

namespace farside {

class Receives {
 public:
  Receives(const QueueLimits& limits, const LocalMemory& memory) : limits_(limits), memory_(memory) {}

  // Posts the first buffers in `queue`, which holds `most`.
  Status begin(fid_ep* queue, std::size_t most);
  // Adds buffers for so many connections. Without memory for them, peers repeat messages.
  void follow(std::size_t connections);
  // Posts a buffer whose message was handled. If the provider refuses it for now, post_refused() does so later.
  void post_again(Receive& buffer);
  bool any_refused() const { return !refused_.empty(); }
  void post_refused();
  std::size_t count() const { return buffers_.size(); }
  // Frees the buffers. Precondition: the provider has none of them.
  void clear() {
    refused_.clear();
    buffers_.clear();
  }

 private:
  Status add(std::size_t count);
  ssize_t post(Receive& buffer) const;  // returns the code of fi_recv

  QueueLimits limits_;
  const LocalMemory& memory_;
  fid_ep* queue_ = nullptr;
  std::vector<std::unique_ptr<Receive>> buffers_;
  std::vector<Receive*> refused_;  // of buffers_
};

}  // namespace farside
