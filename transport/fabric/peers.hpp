// SPDX-License-Identifier: BSD-3-Clause
// The processes that this one reaches over the fabric, or that have connected to it; the connections to them, and the
// operations in flight towards each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/growing_array.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

// A peer has at most one present connection. Others have ended, and wait until nothing is in flight on them.
struct Connection {
  // kConnecting: this process has sent a request; kAccepting: it has accepted the peer's; kDisconnecting: only answers
  // are sent on it.
  enum class State : std::uint8_t { kConnecting, kAccepting, kConnected, kDisconnecting, kEnded };

  std::unique_ptr<MessageRing> ring;  // null if there is none; freed behind the endpoint, which may write to it
  FabricHandle<fid_ep> endpoint;
  PeerState& peer;
  const std::uint64_t number;  // the same on both sides, and unlike that of any other connection
  State state;
  const bool initiated;          // by this process
  bool counted;                  // in Connections::count()
  bool in_order = false;         // the peer's DISCONNECT has arrived: its end is no interruption
  bool disconnect_sent = false;  // this process sends nothing more, but answers
  bool to_disconnect = false;
  bool sought = false;                     // its socket was
  bool disconnect_left = false;            // the provider has sent this process's DISCONNECT
  int socket = -1;                         // over TCP, once it was found
  Clock::time_point since = Clock::now();  // in this state
  bool carries() const { return state == State::kConnected || state == State::kDisconnecting; }
  bool in_progress() const { return state == State::kConnecting || state == State::kAccepting; }
};

// A peer: its address, its connection, and the operations towards it.
//
// Thread safety: each peer has its own mutex, so that threads issue to different peers at once. Fabric's mutex
// guards the rest. A thread that takes both takes Fabric's mutex first, and no thread holds the mutexes of two peers.
struct PeerState {
  Peer number = 0;

  // Guards the following members, up to `pool`; held for one attempt to issue, or one completion.
  BiasedMutex mutex;
  // The connection by which operations are issued. Null: Connections::reach() must be called first.
  fid_ep* endpoint = nullptr;
  bool active = false;          // changes only with Fabric's mutex held, too
  RelaxedFlag begun;            // an operation was begun while none was in flight (PeerHealth)
  RelaxedFlag owes_number;      // a notification may be lost, and the peer may wait for it: a probe has to number it
  RelaxedCount in_flight;       // operations issued, or being issued
  std::uint32_t requests = 0;   // of them requests to the handler that the provider has taken
  RelaxedCount completed;       // operations since the start
  std::uint32_t failures = 0;   // how often the peer was abandoned
  RelaxedCount notifications;   // that were sent, or should have been; and numbers that probes have told
  std::uint32_t confirmed = 0;  // of them, the first so many have arrived, or are known to be lost
  PeerLosses losses;            // also read without the mutex
  OperationPool pool{*this};

  RelaxedFlag used;  // an operation was issued since find_last_use() was called

  // Guarded by Fabric's mutex:
  FabricAddress address;                 // only its identity is known if the peer has connected to this process
  Connection* current = nullptr;         // the present connection
  Clock::time_point not_before{};        // of the next attempt to connect
  std::uint32_t arrived = 0;             // the number of the last of the peer's notifications
  std::uint64_t attempt = 0;             // the peer's latest known attempt: later ones are newer than `current`
  std::uint16_t refused = 0;             // attempts since the last connection, which lengthen the back-off
  std::uint16_t last_error = 0;          // libfabric's error of the last attempt; 0: it succeeded
  bool waits = false;                    // for a place among the requests in flight: it may be in reach
  bool failed = false;                   // the last attempt had a lasting error, and no operation has reported it
  bool probed = false;                   // an adapter has a probe
  std::uint8_t trials = 0;               // PeerHealth::set_on_trial()
  std::uint32_t acknowledged = 0;        // of the notifications; TCP has none of them left, or the connection has ended
  std::uint32_t completed_then = 0;      // `completed` at quiet_since
  std::uint32_t completed_at_check = 0;  // `completed` at the last call of Peers::deactivate_unused()
  Clock::time_point last_use{};
  Clock::duration idle_limit{};     // the time without use after which the connection may be evicted; zero: the lowest
  Clock::time_point quiet_since{};  // since then nothing has completed, nor was a probe taken (adapter: acknowledged)
  Clock::time_point unacknowledged_since{};  // since then TCP awaits acknowledgements, and nothing completes; else zero

  // With the peer's mutex held.
  // Returns whether operations can be issued.
  bool ready() const { return endpoint != nullptr && active; }
  // Returns whether the peer must be watched: operations are in flight, or its host may not have received a
  // notification that TCP has accepted, or has to be told its number.
  bool awaits_host() const { return in_flight > 0 || notifications != acknowledged || owes_number; }
  // With Fabric's mutex held, too: whether a probe can tell the number. (Behind DISCONNECT it might not be read.)
  bool can_tell() const { return owes_number && current != nullptr && current->state == Connection::State::kConnected; }
  // Takes an operation that will be issued.
  FabricOperation& begin() {
    FabricOperation& operation = pool.take();
    operation.completions_left = 1;
    if (in_flight == 0) begun = true;
    ++in_flight;
    return operation;
  }
  // Notes that the provider has taken it.
  void issued(FabricOperation& operation, Pending& pending, Pending::Class counted);

  // With Fabric's mutex held, but any_in_flight().
  bool any_in_flight() {
    const std::scoped_lock held(mutex);
    return in_flight > 0;
  }
  // Returns whether the provider has operations towards the peer.
  bool any_issued();
  // From now on each operation calls Connections::reach() first.
  void withdraw_endpoint() {
    const std::scoped_lock held(mutex);
    endpoint = nullptr;
  }
  // Returns whether there is a connection that carries operations.
  bool connected() const { return current != nullptr && current->carries(); }
  // The number of the present connection; 0 if there is none.
  std::uint64_t connection_number() const { return current != nullptr ? current->number : 0; }
  std::string connect_error() const { return last_error == 0 ? "" : fi_strerror(last_error); }
  // Delays the next attempt to connect: by 1 ms at first, and by up to 100 ms.
  void back_off(Clock::time_point now);
  // Returns when an operation was last issued to the peer. To issue an operation reads no clock. Instead, the time of a
  // use is that of the first call of this function afterwards, which is the next check of active peers at the latest.
  Clock::time_point find_last_use(Clock::time_point now) {
    if (used) {
      used = false;
      last_use = now;
    }
    return last_use;
  }
};

// Peers: the peers by number and by identity; the end of each operation that this process has issued, exactly once,
// with the result in its Pending; and the active peers, towards which operations were begun lately. A process may know
// ten thousand peers and use ten. Periodic work, and the work at the end of a connection, therefore visits only the
// active peers or the operations of one peer.
//
// An operation that is failed before the provider has completed it keeps its context and registered memory until then.
//
// Thread safety: any thread may call of() and interruptions(). Fabric's mutex guards the table and the active peers.
// The ends of operations take the mutex of the peer, but not_issued(), which is called with it held. A waiting thread
// may destroy a Pending right after its last operation has ended here. Errors: none. Cost of each call:
// constant, but for those that fail all operations of a peer. Memory: 350 bytes per peer; that of OperationPool per
// operation, and of LocalMemory.
class Peers {
 public:
  // Makes a peer known; the same identity is the same peer. Peers are small numbers, and do not move. insert() notes
  // its address, before or after the peer has connected.
  PeerState& know(std::uint64_t identity);
  PeerState& insert(const FabricAddress& address) {
    PeerState& peer = know(address.identity);
    peer.address = address;
    return peer;
  }
  // Null if the peer is not known.
  PeerState* find(std::uint64_t identity) const {
    const auto found = by_identity_.find(identity);
    return found != by_identity_.end() ? &of(found->second) : nullptr;
  }
  // Precondition: the peer is known.
  PeerState& of(Peer peer) const { return peers_[peer]; }

  // The registered memory of operations; answers to peers take theirs from it as well.
  LocalMemory& memory() { return memory_; }
  // The number of the operation in its request. The reply repeats it, so that only a receiver of the request can
  // reply.
  std::uint64_t number(const FabricOperation& operation) const {
    return (operation.peer.number << 32 | operation.index) ^ mask_;
  }
  // Notes that the operation is not issued after all.
  void not_issued(FabricOperation& operation) {
    --operation.peer.in_flight;
    recycle(operation);
  }
  // Ends an operation of which no completion will come any more. With the mutex of its peer held.
  void finish(FabricOperation& operation);
  // Notes that the provider has completed it, and copies the fetched data out of its slot.
  void completed(FabricOperation& operation);
  // The same with an error: no reply will arrive either. Returns the endpoint on which it was issued.
  const fid_ep* failed(FabricOperation& operation, Error error);
  // Takes a reply from the network, and checks every field. Returns false if no operation awaits it.
  bool take_reply(std::span<const std::byte> message);
  // Fails all operations towards the peer. Precondition: the provider no longer reads the memory of requests that were
  // written into a ring. It may still use the memory of other operations.
  void fail_all(PeerState& peer, const Error& error);
  // Called when the connection to the peer has ended. Fails the requests that await replies, as the provider does not;
  // those whose send has a completion wait for that. The same precondition. `in_order`: the end is no interruption.
  void fail_awaiting(PeerState& peer, const Error& error, bool in_order);
  // As in Endpoint. All that has arrived from the peer before the interruption is visible to a thread that has read its
  // number. A notification may be lost if no operation that was issued behind it had completed.
  std::uint32_t interruptions() const { return interruptions_.load(std::memory_order_acquire); }
  // Takes the number of a notification of the peer, which has come or was told. A gap counts as an interruption.
  void numbered(PeerState& peer, std::uint32_t number);

  void activate(PeerState& peer);
  // Ends the activity of peers towards which no operation is in flight, nor has completed since the last call. Returns
  // their operations, which may be many, to be freed without the mutex.
  std::vector<OperationPool::Operations> deactivate_unused();
  std::span<PeerState* const> active() const { return active_; }

 private:
  void recycle(FabricOperation& operation);
  // The connection to the peer was interrupted. With the mutex of the peer held, and Fabric's.
  void interrupted(PeerState& peer);
  void count_interruption(PeerState& peer);

  const std::uint64_t mask_ = random_bits();
  LocalMemory memory_;
  StableList<PeerState, 1> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::vector<PeerState*> active_;
  std::atomic<std::uint32_t> interruptions_{0};
};

// PeerHealth: finds the peers that stay out of reach for FARSIDE_PEER_TIMEOUT, among those with operations in flight,
// and abandons them, by probes and the kernel's state of connections (connections.md), but none that is only slow.
//
// Thread safety: timeout() without a peer may be called from any thread, all other members under Fabric's mutex.
// Errors: none. Cost: a few loads per active peer, at regular times only, and three system calls per quiet
// peer. Memory: in PeerState.
class PeerHealth {
 public:
  // The interface to the endpoint.
  class Network {
   public:
    // Sends a probe. Returns 0 or a negative libfabric code; none: nothing more can be sent now.
    virtual std::optional<ssize_t> send_probe(PeerState& peer) = 0;
    // The kernel's state of the present connection; none unless it is TCP.
    virtual std::optional<TcpState> tcp_state(PeerState& peer) = 0;
    // Ends the connection to the peer, and fails the operations towards it.
    virtual void abandon(PeerState& peer, const std::string& why) = 0;

   protected:
    ~Network() = default;
  };

  // `completes_probes`: the connections are an adapter's, which completes a probe when the peer's adapter has
  // acknowledged it. `timeout`: FARSIDE_PEER_TIMEOUT; 0: none.
  PeerHealth(const Peers& peers, Network& network, bool completes_probes, std::chrono::seconds timeout)
      : peers_(peers), network_(network), completes_probes_(completes_probes), timeout_(timeout) {}

  // FARSIDE_PEER_TIMEOUT; 0: none.
  std::chrono::seconds timeout() const { return timeout_; }
  // Returns the time after which this peer is abandoned; 0: it is never abandoned.
  std::chrono::seconds timeout(const PeerState& peer) const;
  // A peer on trial is abandoned after Timing::kTrial, if FARSIDE_PEER_TIMEOUT is not shorter. Several threads may have
  // the same peer on trial; each ends its own.
  static void set_on_trial(PeerState& peer, bool on) { peer.trials += on ? 1 : -1; }

  // Sends probes, and abandons peers.
  void check(Clock::time_point now);
  static void probe_completed(PeerState& peer, Clock::time_point now) {
    peer.probed = false;
    peer.quiet_since = now;
  }

  // Over TCP: abandons peers whose hosts acknowledge nothing.
  void check_hosts(Clock::time_point now);

 private:
  void check(PeerState& peer, Clock::time_point now);
  void abandon(PeerState& peer, Clock::time_point now, const std::string& why);

  const Peers& peers_;
  Network& network_;
  const bool completes_probes_;
  const std::chrono::seconds timeout_;
};

}  // namespace farside
