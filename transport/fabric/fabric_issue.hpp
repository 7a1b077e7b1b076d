// SPDX-License-Identifier: BSD-3-Clause
// Fabric::issue, for the files of Fabric.
#pragma once

#include "transport/fabric/fabric.hpp"

namespace farside {

// Issues one operation. Repeats the call while the provider returns -FI_EAGAIN (queue full, connection being made)
// and the peer is not abandoned. Meanwhile this thread takes completions itself: its repeats count as polls, for which
// the progress thread backs off.
template <class Issue>
Status Fabric::issue(Pending& pending, Peer peer, const char* what, Issue&& call) {
  Operation* operation = nullptr;
  std::uint32_t failures = 0;
  for (Waiter waiter(progress_, own_wake_event_);; waiter.pause()) {
    polls_.fetch_add(1, std::memory_order_relaxed);  // a sent message alone wakes the progress thread
    std::unique_lock held(mutex_);
    PeerState& peer_state = peer_states_.of(peer);
    if (operation == nullptr) {
      operation = &operations_.take();
      operation->parts = 1;
      failures = peer_state.failures;
      peer_states_.begin(peer_state);
      end_long_sleep();
    }
    fid_ep* endpoint = nullptr;
    ssize_t code = connections_->reach(peer, endpoint);
    if (code == 0) code = call(*operation, endpoint);
    if (code == 0) {
      // No thread can complete it before the mutex is released.
      operation->pending = &pending;
      operation->peer = peer;
      operation->endpoint = endpoint;
      peer_state.issued.add(*operation);
      if (most_connections_ > 0) peer_state.last_issued = Clock::now();
      pending.issued();
      return {};
    }
    if (code == -FI_EAGAIN && peer_state.failures == failures) {
      const bool moved = drain();
      held.unlock();
      if (moved) wake_listeners();
      continue;
    }
    peer_states_.end(peer_state);
    recycle(*operation);
    if (code == -FI_EAGAIN) return pending.named(out_of_reach(why_not_taken(peer, what)));
    return pending.named(fabric_error(ErrorKind::kPeer, what, code));
  }
}

}  // namespace farside
