// SPDX-License-Identifier: BSD-3-Clause
// OperationsInFlight: the operations that this process has issued, or is issuing, and that have not ended. It counts
// them per peer (peers.hpp), ends each exactly once, and gives its Pending the result. A request ends when its
// send has completed, if the send has a completion, and its reply has arrived, in either order. An operation that is
// failed before the provider has completed it keeps its context and its registered memory until then.
//
// Thread safety: begin(), issued() and not_issued() are called with the mutex of the peer held, all other members
// without it, and take it. A waiting thread may destroy a Pending right after its last operation has ended here.
// Errors: none of its own. Cost of each call: constant, but for those that fail all operations of a peer. Memory: that
// of PeerStates per peer, of OperationPool per operation, and of LocalMemory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "transport/base/address.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

class OperationsInFlight {
 public:
  PeerStates& peers() { return peers_; }
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
  // The same for a request whose send has no completion: the reply implies that it was sent.
  static void await_only_reply(Operation& operation) { operation.completions_left = 1; }
  // Makes it a notification: it ends when it is sent.
  static void notifies(Operation& operation) { operation.notification = true; }
  // Notes that the provider has taken it.
  static void issued(Operation& operation, PeerState& peer_state, Pending& pending, const fid_ep* endpoint) {
    operation.pending = &pending;
    operation.endpoint = endpoint;
    if (operation.request) ++peer_state.requests;
    if (operation.notification) ++peer_state.notifications;
    operation.notifications_before = peer_state.notifications;
    pending.issued();
  }
  // Notes that the operation is not issued after all.
  void not_issued(Operation& operation, PeerState& peer_state) {
    PeerStates::end(peer_state);
    recycle(operation, peer_state);
  }

  // Notes that the provider has completed it, and copies the fetched data out of its slot.
  void completed(Operation& operation);
  // The same with an error: no reply will arrive either. Returns the endpoint on which it was issued.
  const fid_ep* failed(Operation& operation, Error error);
  // Takes a reply from the network, and checks every field. Returns false if no operation awaits it.
  bool take_reply(std::span<const std::byte> message);
  // Fails all operations towards the peer. Precondition: the provider no longer reads the memory of requests that were
  // written into a ring. It may still use the memory of other operations.
  void fail_all(PeerState& peer_state, const Error& error);
  // Called when the connection to the peer has ended. Fails the requests that await replies, as the provider does not.
  // A request whose send has a completion still waits for that. The same precondition. `in_order`: the end is no
  // interruption.
  void fail_awaiting(Peer peer, const Error& error, bool in_order);
  // As in Endpoint. All that has arrived from the peer before the interruption is visible to a thread that has read its
  // number. A notification may be lost if no operation that was issued behind it had completed.
  std::uint32_t interruptions() const { return interruptions_.load(std::memory_order_acquire); }
  const PeerLosses& losses(Peer peer) const {
    static const PeerLosses none;
    const PeerState* const peer_state = interruptions() != 0 ? peers_.find(peer) : nullptr;
    return peer_state != nullptr ? peer_state->losses : none;
  }

 private:
  void finish(Operation& operation, PeerState& peer_state);
  void recycle(Operation& operation, PeerState& peer_state);
  // The connection to the peer was interrupted. With the mutex of the peer held, and Fabric's.
  void interrupted(PeerState& peer_state);

  const std::uint64_t mask_ = random_bits();
  LocalMemory memory_;
  PeerStates peers_;
  std::atomic<std::uint32_t> interruptions_{0};
};

}  // namespace farside
