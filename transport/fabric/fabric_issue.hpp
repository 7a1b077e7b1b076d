// SPDX-License-Identifier: BSD-3-Clause
// Fabric::issue, for the files of Fabric.
#pragma once

#include "transport/fabric/fabric.hpp"

namespace farside {

// Issues one operation. Repeats the call while the provider returns -FI_EAGAIN (queue full, connection being made) or
// too many operations or requests are under way to the peer, and the peer is not abandoned. Between two attempts this
// thread takes completions itself, because its attempts count as polls, and the progress thread backs off while threads
// poll.
//
// A lack of memory is treated like a full queue, a number of times: operations that complete give memory back.
template <class Issue>
Status Fabric::issue(Pending& pending, Peer peer, const char* what, Issue&& call) {
  PeerState& peer_state = patiently([&]() -> PeerState& { return under_way_.peers().of(peer); });
  Operation* operation = nullptr;
  std::uint32_t failures = 0;
  int tries_without_memory = 1000;
  const auto again_without_memory = [&](auto&& attempt) -> ssize_t {
    try {
      return attempt();
    } catch (const std::bad_alloc&) {
      return --tries_without_memory > 0 ? -FI_EAGAIN : -FI_ENOMEM;
    }
  };
  for (Waiter waiter(progress_, own_wake_event_);; waiter.pause()) {
    thread_.polled();  // else the completion of what is sent would wake the progress thread
    ssize_t code = 0;
    std::unique_lock held(peer_state.mutex);
    if (operation == nullptr) {
      operation = patiently([&] { return &OperationsUnderWay::begin(peer_state); });
      failures = peer_state.failures;
    }
    if (!peer_state.ready()) {
      held.unlock();
      code = again_without_memory([&] { return make_ready(peer_state); });
      held.lock();
    }
    const auto may_issue = [&] {
      return peer_state.ready() && peer_state.under_way <= limits_.operations_per_peer;  // this one included
    };
    if (code == 0 && may_issue())
      code = again_without_memory([&] { return call(*operation, peer_state.endpoint); });
    else if (code == 0)
      code = -FI_EAGAIN;
    if (code == 0) {
      // No thread can complete it before the mutex is released.
      OperationsUnderWay::issued(*operation, peer_state, pending, peer_state.endpoint);
      peer_state.used = true;
      return {};
    }
    if (code == -FI_EAGAIN && peer_state.failures == failures) {
      held.unlock();
      poll();
      continue;
    }
    under_way_.not_issued(*operation, peer_state);
    held.unlock();
    if (code == -FI_EAGAIN) return pending.named(not_taken(peer, what));
    return pending.named(fabric_error(ErrorKind::kPeer, what, code));
  }
}

}  // namespace farside
