// SPDX-License-Identifier: BSD-3-Clause
// How Fabric's files issue operations.
#pragma once

#include "transport/fabric/fabric.hpp"

namespace farside {

// Issues one operation, again while the provider asks for it (queue full, connection being made) and the peer is not
// given up.
template <class Issue>
Status Fabric::issue(Pending& pending, Peer peer, const char* what, Issue&& call) {
  Operation* operation = nullptr;
  std::uint32_t given_up = 0;
  for (Waiter waiter(progress_, own_bell_);; waiter.pause()) {
    polls_.fetch_add(1, std::memory_order_relaxed);  // a sent message alone wakes the progress thread
    const std::unique_lock held(mutex_);
    Contact& contact = contacts_[peer];
    if (operation == nullptr) {
      operation = &operations_.take();
      operation->parts = 1;
      given_up = contact.given_up;
      if (contact.under_way++ == 0) contact.quiet_since = Clock::now();
    }
    fid_ep* endpoint = nullptr;
    ssize_t code = connections_->reach(peer, endpoint);
    if (code == 0) code = call(*operation, endpoint);
    if (code == 0) {
      // Nobody can complete it before the mutex is released.
      operation->pending = &pending;
      operation->peer = peer;
      operation->endpoint = endpoint;
      ++contact.issued;
      if (most_connections_ > 0) contact.last_issued = Clock::now();
      pending.issued();
      return {};
    }
    if (code == -FI_EAGAIN && contact.given_up == given_up) continue;
    --contact.under_way;
    recycle(*operation);
    if (code == -FI_EAGAIN) return pending.named(out_of_reach(fmt::format("{} is not taken", what)));
    return pending.named(fabric_error(ErrorKind::kPeer, what, code));
  }
}

}  // namespace farside
