// SPDX-License-Identifier: BSD-3-Clause
// ConnectionEviction: closes idle connections. The limit is FARSIDE_CONNECTIONS, or the process's share of the node's
// resources for connections if that is less. Beyond this limit the least recently used connections are closed, and
// reopened on demand. An eviction must lose neither operations nor notifications, and a process does not see what its
// peer has under way:
//
//   1. The process that evicts issues nothing more on the idle connection, and sends DISCONNECT.
//   2. Its peer issues nothing more either. When its requests have been answered, it sends DISCONNECT as well.
//   3. The process that has sent DISCONNECT before, and has received the peer's, ends the connection.
//
// Behind DISCONNECT a process sends only answers, for which the peer waits before it sends its own. So each side has
// received all of the other's data when the connection ends. (Data that arrive at a closed socket reset the connection,
// and the kernel then drops what it has not delivered.) If both send DISCONNECT at once, both end the connection. A
// connection that ends before the peer's DISCONNECT has arrived may have lost notifications of the peer: this is an
// interruption (operations_under_way.hpp).
//
// No completion is under way for an open run of writes (operations_under_way.hpp). An eviction therefore ends the run,
// on both sides, so that a process that computes after its puts does not prevent the eviction.
//
// Connections are also evicted, whatever the limit is, when a connection cannot be made for lack of descriptors or
// memory.
//
// The limit is soft. A connection that is in use or was just made stays, since two ranks that need each other would
// otherwise connect and disconnect for ever. RDMA of the peer is not visible here. Therefore a connection that is soon
// reopened must be unused for longer before its next eviction.
//
// Thread safety: most() may be called by any thread, all other members under Fabric's mutex. Errors: none of its own.
// Cost: too_many() a few loads; make_room() goes over the connections, once per kRoomAgain while there are too many.
// Memory: in PeerState.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <sys/types.h>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peer_states.hpp"
#include "transport/fabric/replies.hpp"

namespace farside {

class ConnectionEviction {
 public:
  using Clock = std::chrono::steady_clock;
  // Between two passes over the connections, while there are too many.
  static constexpr std::chrono::milliseconds kRoomAgain{20};
  // `limit`: FARSIDE_CONNECTIONS; 0: none. `send` sends a message to a peer, as Replies::send needs it. `end_run` makes
  // the provider generate the completion of the open run to a peer, if the provider has room. It is called with the
  // peer's mutex held.
  ConnectionEviction(Connections& connections, PeerStates& states, Replies& replies, std::size_t limit,
                     std::function<ssize_t(Reply&)> send, std::function<void(PeerState&)> end_run)
      : connections_(connections),
        states_(states),
        replies_(replies),
        send_(std::move(send)),
        end_run_(std::move(end_run)),
        asked_(limit),
        most_(limit) {}

  // Sets the number of processes of this node, this one included, that use the fabric or may use it. Only the largest
  // number of all calls counts.
  void share_node(std::size_t processes);
  std::size_t node_processes() const { return node_processes_; }
  // The limit of connections; 0: none.
  std::size_t most() const { return most_.load(std::memory_order_relaxed); }
  bool too_many() const { return (most() > 0 && connections_.count() > most()) || connections_.shortage(); }

  // Begins to close connections. To be called repeatedly while there are too many.
  void make_room();
  // Takes a DISCONNECT. The message comes from the network: every field is checked.
  void receive(std::span<const std::byte> message);
  // Returns whether some peer has sent DISCONNECT and its connection has not ended yet.
  bool any_disconnecting() const { return !disconnecting_.empty(); }
  // Ends those of these connections on which no operation of this process is under way.
  void disconnect_idle();
  // Keeps a DISCONNECT to each connected peer among the unsent answers, before this process closes its connections.
  void leave_all();

 private:
  struct Unused {
    Clock::time_point last_use;
    PeerState* peer_state;
  };
  std::vector<Unused> unused(Clock::time_point now);
  void ask_to_disconnect(PeerState& peer_state, bool shortage);
  void end_open_run(PeerState& peer_state);
  std::unique_ptr<Reply> make_disconnect(Peer peer);
  bool ends(Peer peer);

  Connections& connections_;
  PeerStates& states_;
  Replies& replies_;
  const std::function<ssize_t(Reply&)> send_;
  const std::function<void(PeerState&)> end_run_;
  const std::size_t asked_;
  std::atomic<std::size_t> most_;
  std::size_t node_processes_ = 0;
  std::vector<Peer> disconnecting_;  // peers that have sent DISCONNECT
  Clock::time_point make_room_again_{};
};

}  // namespace farside
