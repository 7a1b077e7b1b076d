// SPDX-License-Identifier: BSD-3-Clause
// Connections: the connections of a process to its peers, one endpoint (FI_EP_MSG) each, which either side connects
// at the first operation. Each process listens. The ranks of a job exchange their addresses, identities and secrets
// through the runtime: a connection request carries the listener's secret, and the answer carries the listener's
// identity (connecting.hpp). All endpoints share one queue of receives.
//
// When both sides connect at once, the request of the process with the lower identity stands: the other process
// accepts it and drops its own. A refused request is repeated after a back-off, until Fabric abandons the peer. At most
// kMostInitiated requests are in flight, and requests to further peers wait in a queue, so that a thousand first
// operations do not flood the peers' listeners.
//
// Opening an endpoint may wait until the peer's address is resolved. Separate threads then open it (EndpointOpener),
// and progress() requests the connection when the endpoint is open. No request is in flight before that, so a request
// of the peer simply replaces it. fi_connect does not wait: over TCP it calls connect(2) on a socket that does not
// block.
//
// A process connects only when it has no connection to the peer. A request that is newer than the present connection
// therefore says that the peer has closed that connection, although this side saw no event (the cable may have been
// cut). Requests are numbered for this (Hello::attempt).
//
// Not thread-safe: Fabric calls it under its mutex. No call of libfabric here waits for a peer. Errors: kNoRoute when
// it is opened; reach() returns those of connecting. Cost of reach on a connected peer: a few loads; over TCP 40 us per
// attempt to connect, over an adapter a thread. Memory: that of ConnectionTable, without what libfabric keeps, and 8
// bytes per peer that waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/connecting.hpp"
#include "transport/fabric/connection_table.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/messages.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

class Connections {
  using Clock = Connection::Clock;

 public:
  // Called when the connection to a peer has ended: the provider fails the operations on it, and no reply arrives on it
  // any more. `in_order`: the peer's DISCONNECT had arrived before.
  using Lost = std::function<void(Peer, const std::string&, bool in_order)>;
  // Called before the endpoint that reach() gave for this process's own operations stops carrying them.
  using Withdraw = std::function<void(Peer)>;
  // How the endpoints for this process's own requests are opened.
  struct Opening {
    // At most this many threads open endpoints; 0: reach() and progress() open them.
    std::size_t threads = 0;
    // Called by such a thread when progress() is to be called.
    std::function<void()> opened;
    // For tests: as ConnectionEndpoints::Resolve.
    ConnectionEndpoints::Resolve resolve;
  };
  // Requests that may be in flight at once, their endpoints being opened included.
  static constexpr std::size_t kMostInitiated = 32;

  // `domain` must outlive this object. `receives`: as for ConnectionEndpoints::open. Errors: kNoRoute.
  static Result<std::unique_ptr<Connections>> open(const FabricDomain& domain, std::size_t receives, Lost lost,
                                                   Withdraw withdraw, Opening opening);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  // Takes the messages that have arrived. Called before a connection counts as ended.
  std::function<void()> before_end;
  // Posts the receives for so many connections. Called before a connection is requested or accepted, since the peer may
  // send as soon as there is one.
  std::function<void(std::size_t connections)> before_more;

  // The address by which peers reach this process.
  const FabricAddress& address() const { return address_; }
  // Makes a peer known; the same address is the same peer. Peers are small numbers.
  Peer insert(const FabricAddress& address) { return table_.insert(address); }
  // The peers, and the connections to them.
  ConnectionTable& table() { return table_; }

  enum class What { kOwn, kAnswer };
  // Gives the endpoint of the peer, for this process's own operations or for answers to the peer's, and connects if
  // necessary. Returns 0 or a negative libfabric code. The code is -FI_EAGAIN while a connection is being made or
  // closed, or while the request waits for a place or for the next attempt; the caller must then call reach() again.
  // The endpoint may be used until Withdraw is called, for answers until the next call of a member.
  ssize_t reach(Peer peer, fid_ep*& endpoint, What what = What::kOwn);
  // The queues of connection events and of receives; completions do not name the peer.
  const ConnectionEndpoints& endpoints() const { return endpoints_; }
  // Handles connection events. Returns whether there were any.
  bool progress();
  // Takes the messages that peers have written into the rings of their connections, in the order of each peer:
  // receive(std::span<const std::byte>). Returns whether there were any.
  template <class Receive>
  bool take_messages(Receive&& receive) {
    bool any = false;
    for (std::size_t i = 0; i < table_.with_ring().size(); ++i) {
      const Connection& connection = *table_.with_ring()[i];
      any = connection.ring->take(connection.endpoint.get(), !connection.disconnect_sent, receive) || any;
    }
    return any;
  }
  // Returns whether there are any.
  bool any_message() const {
    return std::ranges::any_of(table_.with_ring(), [](const Connection* each) { return each->ring->any_message(); });
  }
  // Returns whether credits must still be sent to some peer. take_messages() tries again to send them.
  bool owes_credits() const {
    return std::ranges::any_of(table_.with_ring(), [](const Connection* each) {
      return !each->disconnect_sent && each->ring->owes_credits();
    });
  }
  // Returns whether some connection is being made; a waiting thread should then call progress.
  bool connecting() const { return table_.in_progress() > 0 || opener_.count() > 0; }
  // Returns whether the request to the peer still waits for a place. Then no attempt has shown yet whether the peer is
  // in reach.
  bool waits_for_place(Peer peer) const { return table_.of(peer).waits; }
  // The resources. After a shortage, the caller should close idle connections.
  ConnectionRoom& room() { return room_; }
  // The error of the last attempt to connect to the peer; empty if it succeeded.
  std::string connect_error(Peer peer) const {
    const std::uint16_t error = table_.of(peer).last_error;
    return error == 0 ? "" : fi_strerror(error);
  }
  // The number of connections that exist or are being made, without those that are being closed.
  std::size_t count() const { return table_.not_closing() + opener_.count(); }
  // The present connection to the peer; null if there is none.
  Connection* present(Peer peer) const { return table_.of(peer).current; }
  // Returns whether there is a connection to the peer that carries operations.
  bool connected(Peer peer) const { return present(peer) != nullptr && present(peer)->carries(); }
  // The number of the present connection, the same on both sides and unlike that of any other; 0 if there is none.
  std::uint64_t number(Peer peer) const { return present(peer) != nullptr ? present(peer)->number : 0; }
  // Returns the peer whose present connection has this number; none if there is no such connection.
  std::optional<Peer> peer_of(std::uint64_t number) const { return table_.peer_of(number); }
  // What the kernel knows of the present connection to the peer; none if it is not one of TCP that carries operations.
  // A millisecond, if sockets of connections must be searched for.
  std::optional<TcpState> tcp_state(Peer peer);
  // Closes a connection after ConnectionTable::begin_disconnect(). Precondition: no operation of this process is in
  // flight on it. The next operation connects again. Returns false if the connection is still being made.
  bool disconnect(Peer peer);
  // Notes that an operation on `endpoint`, an endpoint of this peer, has failed. After that, an adapter's queue pair
  // executes nothing more, and libfabric reports no event. The connection is lost.
  void failed(Peer peer, const fid_ep* endpoint, const std::string& why);
  // Ends the connection to an abandoned peer, in any state, and removes the request for one, so that the provider no
  // longer touches the buffers of operations that are in flight on it. The operations that were to generate a
  // completion complete with errors. `lost` is not called.
  void stop(Peer peer);

 private:
  using State = Connection::State;

  Connections(const FabricDomain& domain, Lost lost, Opening opening);
  Hello hello_of(std::uint64_t connection, const MessageRing* ring) const;
  // Null if there are none, or enough.
  std::unique_ptr<MessageRing> make_ring() const {
    constexpr std::size_t kMost = 64;
    return table_.size() < kMost ? MessageRing::make(domain_) : nullptr;
  }
  void take_request(fi_info& info, const std::optional<Hello>& hello);
  bool resolve_crossing_request(const Hello& hello, Peer peer);
  void established(Connection& connection, const std::optional<Hello>& hello);
  void ended(Connection& connection, const std::string& why);
  void take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes);
  void take_error();
  void shut_down(Connection& connection);
  // This process's requests. Their errors stay in KnownPeer, for the next operation.
  void connect_waiting();
  ssize_t connect(Peer peer);
  ssize_t request(Peer peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring);
  void not_connected(Peer peer, ssize_t code);
  bool take_opened();

  const FabricDomain& domain_;
  const Lost lost_;
  FabricAddress address_;
  ConnectionEndpoints endpoints_;
  ConnectionTable table_;  // its endpoints are bound to what endpoints_ has
  ConnectionRoom room_;
  std::uint64_t attempts_ = 0;  // this process's requests to any peer so far
  std::deque<Peer> waiting_;    // for a place; entries without KnownPeer::waits are void
  const bool opens_by_threads_;
  EndpointOpener opener_;  // the threads end first
};

// ConnectionEviction: closes idle connections, the least recently used first, beyond FARSIDE_CONNECTIONS or what
// ConnectionRoom has room for, and when a connection cannot be made for lack of descriptors or memory. An eviction must
// lose neither operations nor notifications, and a process does not see what its peer has in flight:
//
//   1. The process that evicts issues nothing more on the idle connection, and sends DISCONNECT.
//   2. Its peer issues nothing more either. When its requests have been answered, it sends DISCONNECT as well.
//   3. The process that has sent DISCONNECT before, and has received the peer's, ends the connection.
//
// Behind DISCONNECT a process sends only answers, for which the peer waits before it sends its own. So each side has
// received all of the other's data when the connection ends. (Data that arrive at a closed socket reset the connection,
// and the kernel then drops what it has not delivered.) If both send DISCONNECT at once, both end the connection. A
// connection that ends before the peer's DISCONNECT has arrived may have lost notifications of the peer: this is an
// interruption (in_flight.hpp).
//
// The limit is soft. A connection that is in use or was just made stays, since two ranks that need each other would
// otherwise connect and disconnect for ever. RDMA of the peer is not visible here. Therefore a connection that is soon
// reopened must be unused for longer before its next eviction.
//
// Not thread-safe: Fabric's mutex guards it. Errors: none of its own. Cost: too_many() a few loads; make_room() goes
// over the connections, once per kRoomAgain while there are too many. Memory: in PeerState.
class ConnectionEviction {
 public:
  using Clock = std::chrono::steady_clock;
  // `limit`: FARSIDE_CONNECTIONS; 0: none.
  ConnectionEviction(Connections& connections, PeerStates& states, Replies& replies, std::size_t limit)
      : connections_(connections), states_(states), replies_(replies), asked_(limit), most_(limit) {}

  // Sets the number of processes of this node, this one included, that use the fabric or may use it. Only the largest
  // number of all calls counts.
  void share_node(std::size_t processes);
  std::size_t node_processes() const { return node_processes_; }
  bool too_many() const { return (most_ > 0 && connections_.count() > most_) || connections_.room().shortage; }

  // Begins to close connections. To be called repeatedly while there are too many.
  void make_room();
  // Takes a DISCONNECT. The message comes from the network: every field is checked.
  void receive(std::span<const std::byte> message);
  // Returns whether some peer has sent DISCONNECT and its connection has not ended yet.
  bool any_disconnecting() const { return !disconnecting_.empty(); }
  // Ends those of these connections on which no operation of this process is in flight.
  void disconnect_idle();
  // Keeps a DISCONNECT to each connected peer among the unsent answers, before this process closes its connections.
  void leave_all();

 private:
  void ask_to_disconnect(PeerState& peer_state, bool shortage);
  std::unique_ptr<Reply> make_disconnect(Peer peer);
  bool ends(Peer peer);

  Connections& connections_;
  PeerStates& states_;
  Replies& replies_;
  const std::size_t asked_;
  std::size_t most_;  // the limit of connections; 0: none
  std::size_t node_processes_ = 0;
  std::vector<Peer> disconnecting_;  // peers that have sent DISCONNECT
  Clock::time_point make_room_again_{};
};

}  // namespace farside
