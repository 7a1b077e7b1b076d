// SPDX-License-Identifier: BSD-3-Clause
// OperationsInFlight: the operations that this process has issued, or is issuing, and that have not ended. It counts
// them per peer (peers.hpp), ends each exactly once, and gives its Pending the result. A request ends when its
// send has completed, if the send has a completion, and its reply has arrived, in either order. An operation that is
// failed before the provider has completed it keeps its context and its registered memory until then.
//
// A *run* is an operation of up to kLongestRun small writes to one peer that count in one Pending. The provider copies
// them at the call, and generates a completion for the last one only. That suffices because an adapter completes the
// operations of a connection in their order. The last write of a run is the kLongestRun-th, or the one after which a
// thread is expected to wait. The expected number is that of the writes between the last two waits. If another
// operation is issued to the peer while a run is open, the run ends with that operation (`covers`). If a thread waits
// while a run is open, or if a run stays open while nothing completes from one check to the next, an empty write is
// issued to end it. So a program that waits after every write, or after every n-th, costs no empty writes. If the
// connection ends, the provider generates no completion for an open run; the run is failed here.
//
// libfabric's verbs provider (1.17 to 2.6) nevertheless has each operation signalled (sq_sig_all). When it reads the
// queue, it drops the completions that were not requested. The number of runs in flight is limited, so that the queue
// has room for all their writes. The provider drops the errors of these writes, too. The queue pair then executes
// nothing more, so the operation that ends the run fails, and the run with it. If the two count in different Pendings,
// each of these has the error: it is not known whether the run failed or only the operation that ends it.
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
#include <sys/types.h>
#include <utility>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/buffers.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

class OperationsInFlight {
 public:
  static constexpr std::uint32_t kLongestRun = 32;
  // `most_runs`: at most as many are in flight at a time.
  explicit OperationsInFlight(std::size_t most_runs = 0) : most_runs_(most_runs) {}

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
  // The same for a request whose send has no completion: the reply implies that it was sent.
  static void await_only_reply(Operation& operation) { operation.completions_left = 1; }
  // Makes it a notification: it ends when it is sent.
  static void notifies(Operation& operation) { operation.notification = true; }
  // Notes that the provider has taken it.
  static void issued(Operation& operation, PeerState& peer_state, Pending& pending, const fid_ep* endpoint) {
    operation.pending = &pending;
    operation.endpoint = endpoint;
    if (peer_state.run.open != nullptr && peer_state.run.open->endpoint == endpoint)
      operation.covers = std::exchange(peer_state.run.open, nullptr);
    peer_state.issued.add(operation);
    if (operation.request) {
      ++peer_state.requests;
      if (operation.sent_outside_ring) ++peer_state.sent_outside_ring;
    }
    if (operation.notification) {
      ++peer_state.notifications;
      if (operation.sent_outside_ring) peer_state.last_sent_outside_ring = peer_state.notifications;
    }
    operation.notifications_before = peer_state.notifications;
    pending.issued();
  }
  // Notes that the operation is not issued after all.
  void not_issued(Operation& operation, PeerState& peer_state) {
    PeerStates::end(peer_state);
    recycle(operation, peer_state);
  }

  // Gives the run that the next small write to the peer joins: the open one, or a new one. Null if the write must be
  // issued by itself: the open run counts in another Pending, or too many are in flight. written() or not_written()
  // follows, with the peer's mutex held since.
  Operation* run_for_write(PeerState& peer_state, const Pending& pending);
  // Returns whether the next write is the last one of its run, which needs a completion.
  static bool ends_run(const PeerState& peer_state) {
    const WriteRun& run = peer_state.run;
    return (run.open != nullptr && run.length + 1 == kLongestRun) || run.since_wait + 1 == run.expected;
  }
  // Notes that the provider has taken the write, with the run's context if it is the last one.
  static void written(Operation& run, PeerState& peer_state, Pending& pending, const fid_ep* endpoint, bool last);
  // Notes that the provider has not taken it.
  void not_written(Operation& run, PeerState& peer_state) {
    if (peer_state.run.open != &run) not_issued(run, peer_state);
  }
  // Notes that a thread is about to wait for the writes of the peer's runs.
  static void waits(PeerState& peer_state) {
    if (peer_state.run.since_wait > 0) peer_state.run.expected = std::exchange(peer_state.run.since_wait, 0);
  }
  // Ends the open run, if there is one that counts in `pending` (null: in any), with an empty write, which
  // issue(Operation&) gives to the provider. Returns the result: 0, -FI_EAGAIN, or an error, with which the caller is
  // to fail the run. With the mutex of the peer held.
  template <class Issue>
  ssize_t end_run(PeerState& peer_state, const Pending* pending, Issue&& issue) {
    Operation* const run = peer_state.run.open;
    if (run == nullptr || (pending != nullptr && run->pending != pending)) return 0;
    const ssize_t code = issue(*run);
    if (code == 0) peer_state.run.open = nullptr;
    return code;
  }
  // Returns whether a run is open that was open at the last call of this, too. With the mutex of the peer held.
  static bool stays_open(PeerState& peer_state) {
    const std::uint32_t now = peer_state.run.open != nullptr ? peer_state.run.open->generation : 0;
    return std::exchange(peer_state.run.open_at_check, now) == now && now != 0;
  }
  // Fails the open run, if there is one. With the mutex of the peer held.
  void fail_open_run(PeerState& peer_state, const Error& error);

  // Notes that the provider has completed it, and copies the fetched data out of its slot.
  void completed(Operation& operation);
  // The same with an error: no reply will arrive either. Returns the endpoint on which it was issued.
  const fid_ep* failed(Operation& operation, Error error);
  // Takes a reply from the network. Returns false if no operation awaits it.
  bool take_reply(std::span<const std::byte> message);
  // Fails all operations towards the peer. Precondition: the provider no longer reads the memory of requests that were
  // written into a ring. It may still use the memory of other operations.
  void fail_all(PeerState& peer_state, const Error& error);
  // Called when the connection to the peer has ended. Fails the operations that the provider does not fail: the open
  // run, and the requests that await replies. A request whose send has a completion still waits for that. The same
  // precondition. `in_order`: the end is no interruption.
  void fail_awaiting(Peer peer, const Error& error, bool in_order);
  // Interruptions: the ends of connections by which notifications of the peer may be lost. They are numbered from 1 on,
  // over all peers. Returns the number of the last one, or of the peer's last one; 0: none. All that has arrived from
  // the peer before is visible to a thread that has read the number. One load; the second one takes the peer's mutex.
  std::uint32_t interruptions() const { return interruptions_.load(std::memory_order_acquire); }
  std::uint32_t last_interruption(Peer peer) const { return after_interruption(peer, &PeerState::last_interruption); }
  // Returns the number of interruptions that may have lost notifications to the peer. A notification may be lost if no
  // operation that was issued behind it had completed.
  std::uint32_t lost_notifications(Peer peer) const { return after_interruption(peer, &PeerState::lost_notifications); }
  // Returns whether take_lost_notification() would return true. Takes the peer's mutex.
  bool has_loss_to_report(Peer peer) const { return after_interruption(peer, &PeerState::loss_to_report); }
  // Returns whether notifications to the peer may have been lost since the last call. Called without the peer's mutex.
  static bool take_lost_notification(PeerState& peer_state);
  // Ends all registrations. The provider must have ended all operations.
  void release_memory();

 private:
  // Returns a member of the peer's state that only interruptions change; its first value without an interruption.
  template <class T>
  T after_interruption(Peer peer, T PeerState::*member) const {
    PeerState* const peer_state = interruptions() != 0 ? peers_.find(peer) : nullptr;
    if (peer_state == nullptr) [[likely]]
      return {};
    const std::scoped_lock held(peer_state->mutex);
    return peer_state->*member;
  }
  void finish(Operation& operation, PeerState& peer_state);
  void recycle(Operation& operation, PeerState& peer_state);
  // The connection to the peer was interrupted. With the mutex of the peer held, and Fabric's.
  void interrupted(PeerState& peer_state);

  const std::uint64_t mask_ = random_bits();
  const std::size_t most_runs_;
  std::atomic<std::size_t> runs_{0};  // in flight
  LocalMemory memory_;
  PeerStates peers_;
  std::atomic<std::uint32_t> interruptions_{0};
};

}  // namespace farside
