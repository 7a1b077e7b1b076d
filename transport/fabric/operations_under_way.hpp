// SPDX-License-Identifier: BSD-3-Clause
// OperationsUnderWay: the operations that this process has issued, or is issuing, and that have not ended. It counts
// them per peer (peer_states.hpp), ends each exactly once, and gives its Pending the result. A request ends when its
// send has completed and its reply has arrived, in either order. An operation that is failed before the provider has
// completed it keeps its context and its registered memory until then.
//
// Thread safety: begin(), issued() and not_issued() are called with the mutex of the peer held, all other members
// without it, and take it. A waiting thread may destroy a Pending right after its last operation has ended here.
// Errors: none of its own. Cost of each call: constant, but for those that fail all operations of a peer. Memory: that
// of PeerStates per peer, of OperationPool per operation, and of LocalMemory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/random.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peer_states.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

class OperationsUnderWay {
 public:
  PeerStates& peers() { return peers_; }
  const PeerStates& peers() const { return peers_; }
  // The registered memory of operations; answers to peers take theirs from it as well.
  LocalMemory& memory() { return memory_; }
  // The number of the operation in its request. The reply repeats it, so that only a receiver of the request can
  // reply.
  std::uint64_t number(const Operation& operation) const { return (operation.peer << 32 | operation.index) ^ mask_; }

  // Takes an operation that will be issued to the peer.
  static Operation& begin(PeerState& peer_state) {
    Operation& operation = peer_state.pool.take();
    operation.completions_left = 1;
    PeerStates::begin(peer_state);
    return operation;
  }
  // Makes it a request, which also awaits a reply.
  static void await_reply(Operation& operation) {
    operation.request = true;
    operation.completions_left = 2;
    operation.awaits_reply = true;
  }
  // Makes it a notification: it ends when it is sent.
  static void notifies(Operation& operation) { operation.notification = true; }
  // Notes that the provider has taken it.
  static void issued(Operation& operation, PeerState& peer_state, Pending& pending, const fid_ep* endpoint) {
    operation.pending = &pending;
    operation.endpoint = endpoint;
    peer_state.issued.add(operation);
    if (operation.request) ++peer_state.requests;
    if (operation.notification) ++peer_state.notifications;
    operation.notifications_before = peer_state.notifications;
    pending.issued();
  }
  // Notes that the provider will not get it.
  void not_issued(Operation& operation, PeerState& peer_state) {
    PeerStates::end(peer_state);
    recycle(operation, peer_state);
  }

  // Notes that the provider has completed it, and copies the fetched data out of its slot.
  void completed(Operation& operation);
  // The same with an error: no reply will arrive either. Returns the endpoint on which it was issued.
  const fid_ep* failed(Operation& operation, Error error);
  // Takes a reply from the network. Returns false if no operation awaits it.
  bool take_reply(std::span<const std::byte> message);
  // Fails all operations towards the peer. The provider still has some of them.
  void fail_all(PeerState& peer_state, const Error& error);
  // Fails the requests to the peer that await replies; for those that the provider has, its completion is awaited.
  void fail_awaiting(Peer peer, const Error& error);
  // How often a connection to the peer has ended while, of its notifications, no operation that was issued behind them
  // had completed.
  std::uint32_t lost_notifications(Peer peer) const;
  bool any_notification_lost() const { return any_lost_.load(std::memory_order_acquire); }
  // Whether there was one since the last call. Called without the peer's mutex.
  static bool take_lost_notification(PeerState& peer_state);
  // Ends all registrations. The provider must have ended all operations.
  void release_memory();

 private:
  void finish(Operation& operation, PeerState& peer_state);
  void recycle(Operation& operation, PeerState& peer_state);
  // The connection to the peer has ended. With the mutex of the peer held.
  void lose_notifications(PeerState& peer_state);

  const std::uint64_t mask_ = random_bits();
  LocalMemory memory_;
  PeerStates peers_;
  std::atomic<bool> any_lost_{false};  // a notification, at any time
};

}  // namespace farside
