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
// fi_endpoint may block over verbs (connections.md), while the peer's address is resolved or ibacm is asked. Separate
// threads then open the endpoint, one each, and progress() requests the connection when it is open. No request is in
// flight before that, so a request of the peer simply replaces it. fi_connect does not wait.
//
// A process connects only when it has no connection to the peer. A request that is newer than the present connection
// therefore says that the peer has closed that connection, although this side saw no event (the cable may have been
// cut). Requests are numbered for this (Hello::attempt).
//
// Not thread-safe: Fabric calls it under its mutex. No call of libfabric here waits for a peer. Errors: kNoRoute when
// it is opened; reach() returns those of connecting. Cost of reach on a connected peer: a few loads; over TCP 40 us per
// attempt to connect, over an adapter a thread. Memory: about 140 bytes per connection, without what libfabric keeps,
// and 8 bytes per peer that waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unordered_map>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/connecting.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/messages.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

class Connections {
  using State = Connection::State;

 public:
  // For tests: called before an endpoint is opened, in place of a resolution of the address. A negative libfabric code
  // is the result.
  using Resolve = std::function<int(const SocketAddress&)>;
  // How the endpoints for this process's own requests are opened.
  struct Opening {
    // At most this many threads open endpoints; 0: reach() and progress() open them.
    std::size_t threads = 0;
    // Called by such a thread when progress() is to be called.
    std::function<void()> opened;
    Resolve resolve;
  };
  static constexpr std::size_t kMostThreads = 8;
  // Requests that may be in flight at once, their endpoints being opened included.
  static constexpr std::size_t kMostInitiated = 32;

  // `domain` and `peers` must outlive this object.
  Connections(const FabricDomain& domain, Peers& peers, Opening opening);
  ~Connections();

  // To be called first: begins to listen. `receives`: how many the queue that all endpoints share shall hold; 0:
  // libfabric's default. Errors: kNoRoute.
  Status listen(std::size_t receives);

  // Called when the connection to a peer has ended: the provider fails the operations on it, and no reply arrives on it
  // any more. `in_order`: the peer's DISCONNECT had arrived before.
  std::function<void(PeerState&, const std::string&, bool in_order)> lost;
  // Takes the messages that have arrived. Called before a connection counts as ended.
  std::function<void()> before_end;
  // Posts the receives for so many connections. Called before a connection is requested or accepted, since the peer may
  // send as soon as there is one.
  std::function<void(std::size_t connections)> before_more;

  // The address by which peers reach this process.
  const FabricAddress& address() const { return address_; }
  enum class What { kOwn, kAnswer };
  // Gives the endpoint of the peer, for this process's own operations or for answers to the peer's, and connects if
  // necessary. Returns 0 or a negative libfabric code. The code is -FI_EAGAIN while a connection is being made or
  // closed, or while the request waits for a place or for the next attempt; the caller must then call reach() again.
  // The endpoint may be used until PeerState::withdraw_endpoint() is called, for answers until the next call of a
  // member.
  ssize_t reach(PeerState& peer, fid_ep*& endpoint, What what = What::kOwn);
  // The queues of connection events and of receives; completions do not name the peer.
  fid_eq* events() const { return events_.get(); }
  int events_fd() const { return events_fd_; }
  fid_ep* receiver() const { return receives_.get(); }
  // How many receives it holds: what was asked for, or libfabric's default if an adapter has no room for that.
  std::size_t most_receives() const { return most_receives_; }
  // Handles connection events. Returns whether there were any.
  bool progress();
  // Takes the messages that peers have written into the rings of their connections, in the order of each peer:
  // receive(std::span<const std::byte>). Returns whether there were any. Messages may be in a ring before the
  // connection is established here.
  template <class Receive>
  bool take_messages(Receive&& receive) {
    bool any = false;
    for (std::size_t i = 0; i < with_ring_.size(); ++i) {
      const Connection& connection = *with_ring_[i];
      any = connection.ring->take(connection.endpoint.get(), !connection.disconnect_sent, receive) || any;
    }
    return any;
  }
  // Returns whether there are any.
  bool any_message() const {
    return std::ranges::any_of(with_ring_, [](const Connection* each) { return each->ring->any_message(); });
  }
  // Returns whether credits must still be sent to some peer. take_messages() tries again to send them.
  bool owes_credits() const {
    return std::ranges::any_of(
        with_ring_, [](const Connection* each) { return !each->disconnect_sent && each->ring->owes_credits(); });
  }
  // Returns whether some connection is being made; a waiting thread should then call progress.
  bool connecting() const { return in_progress_ > 0 || opening() > 0; }
  // The resources. After a shortage, the caller should close idle connections.
  ConnectionRoom& room() { return room_; }
  // The number of connections to other processes that exist or are being made, without those that are being closed.
  std::size_t count() const { return not_closing_ + opening(); }
  // Calls act(Connection&) for each present connection.
  template <class Do>
  void for_each_present(Do&& act) const {
    for (const auto& [_, connection] : connections_) {
      if (is_present(*connection)) act(*connection);
    }
  }
  // Returns the peer whose present connection has this number; null if there is no such connection.
  PeerState* peer_of(std::uint64_t number) const;
  // Returns whether the kernel of the peer's host has accepted the present connection; false unless it is TCP.
  // A millisecond.
  bool host_accepts(const PeerState& peer) const;
  // The kernel's state of the present connection to the peer; none unless it is TCP and carries operations.
  // A millisecond, if sockets of connections must be searched for.
  std::optional<TcpState> tcp_state(const PeerState& peer);
  // From now on only answers are sent on the connection.
  void begin_disconnect(Connection& connection);
  // Closes a connection after begin_disconnect(). Precondition: no operation of this process is in flight on it. The
  // next operation connects again. Returns false if the connection is still being made.
  bool disconnect(PeerState& peer);
  // Notes that an operation on `endpoint`, an endpoint of this peer, has failed. After that, an adapter's queue pair
  // executes nothing more, and libfabric reports no event. The connection is lost.
  void failed(PeerState& peer, const fid_ep* endpoint, const std::string& why);
  // Ends the connection to an abandoned peer, in any state, and removes the request for one, so that the provider no
  // longer touches the buffers of operations that are in flight on it. The operations that were to generate a
  // completion complete with errors. `lost` is not called.
  void stop(PeerState& peer);
  // Closes the ended connections of those peers towards which nothing is in flight. Looks at all connections.
  void close_ended();

 private:
  Hello hello_of(std::uint64_t connection, const MessageRing* ring) const;
  // Null if there are none, or enough.
  std::unique_ptr<MessageRing> make_ring() const {
    constexpr std::size_t kMost = 64;
    return connections_.size() < kMost ? MessageRing::make(domain_) : nullptr;
  }
  bool is_self(const PeerState& peer) const { return peer.address.identity == address_.identity; }
  static bool is_present(const Connection& connection) { return connection.peer.current == &connection; }

  // An endpoint that a thread opens, for a connection to the peer.
  struct Opened {
    explicit Opened(PeerState& to) : peer(to) {}
    ~Opened() {
      if (thread.joinable()) thread.join();
    }
    PeerState& peer;
    ssize_t code = 0;               // of open_towards()
    FabricHandle<fid_ep> endpoint;  // if it is 0
    bool wanted = true;
    std::atomic<bool> done{false};
    std::thread thread;
  };
  // How many endpoints are being opened, or can be taken.
  std::size_t opening() const { return static_cast<std::size_t>(std::ranges::count_if(opened_, &Opened::wanted)); }
  Opened* find_opened(const PeerState& peer);
  bool cancel_opening(const PeerState& peer);
  void drop_ended_threads();

  // The libfabric objects of connections (fi_endpoint(3), fi_cm(3), fi_eq(3)). Any thread may open an endpoint: for a
  // peer's request (`info` came with it), or for a request of this process to the address. `ring`: by which messages
  // are sent on it (message_ring.hpp), or null. Both return 0 or a negative libfabric code.
  ssize_t open_accepting(fi_info* info, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  ssize_t open_towards(const SocketAddress& address, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  void reject(const fi_info& info) const { fi_reject(listener_.get(), info.handle, nullptr, 0); }

  // The states of a connection.
  void add(FabricHandle<fid_ep> endpoint, PeerState& peer, State state, std::uint64_t number,
           std::unique_ptr<MessageRing> ring);
  void become(Connection& connection, State state);
  void end(Connection& connection);
  // Closes its endpoint, and forgets it.
  void close(Connection& connection) { connections_.erase(&connection.endpoint->fid); }

  // Events.
  void take_request(fi_info& info, const std::optional<Hello>& hello);
  bool resolve_crossing_request(const Hello& hello, PeerState& peer);
  void established(Connection& connection, const std::optional<Hello>& hello);
  void ended(Connection& connection, const std::string& why);
  void take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes);
  void take_error(const fi_eq_err_entry& entry);
  void shut_down(Connection& connection);

  // This process's requests. Their errors stay in the PeerState, for the next operation.
  void connect_waiting();
  ssize_t connect(PeerState& peer);
  ssize_t request(PeerState& peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring);
  void not_connected(PeerState& peer, ssize_t code);
  bool take_opened();

  const FabricDomain& domain_;
  Peers& peers_;
  FabricAddress address_;
  const Opening opening_;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;
  std::size_t most_receives_ = 0;
  FabricHandle<fid_pep> listener_;
  // Their endpoints are bound to the queues.
  std::unordered_map<const fid*, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> with_ring_;  // that have not ended
  std::size_t not_closing_ = 0;         // as count(), with an endpoint
  std::size_t in_progress_ = 0;         // in kConnecting or kAccepting
  std::size_t initiated_ = 0;           // in kConnecting
  ConnectionRoom room_;
  std::uint64_t attempts_ = 0;      // this process's requests to any peer so far
  std::deque<PeerState*> waiting_;  // for a place; entries without PeerState::waits are void
  std::list<Opened> opened_;        // the threads end first
};

// ConnectionEviction: closes idle connections, the least recently used first, beyond FARSIDE_CONNECTIONS or what
// ConnectionRoom has room for, and when a connection cannot be made for lack of descriptors or memory. An eviction must
// lose neither operations nor notifications, and a process does not see what its peer has in flight:
//
//   1. The process that evicts issues nothing more on the idle connection, and sends DISCONNECT.
//   2. Its peer issues nothing more either. When its requests have been answered, it sends DISCONNECT as well.
//   3. The process that has sent DISCONNECT before, and has received the peer's, ends the connection when the provider
//      has sent its own.
//
// Behind DISCONNECT a process sends only answers, for which the peer waits before it sends its own. So each side has
// received all of the other's data when the connection ends. (Data that arrive at a closed socket reset the connection,
// and the kernel then drops what it has not delivered.) If both send DISCONNECT at once, both end the connection. A
// connection that ends before the peer's DISCONNECT has arrived may have lost notifications of the peer: this is an
// interruption (peers.hpp). The limit is soft (connections.md).
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: too_many() a few loads; make_room() goes
// over the connections, once per kRoomAgain while there are too many. Memory: in PeerState.
class ConnectionEviction {
 public:
  // `limit`: FARSIDE_CONNECTIONS; 0: none.
  ConnectionEviction(Connections& connections, Replies& replies, std::size_t limit)
      : connections_(connections), replies_(replies), asked_(limit), most_(limit) {}

  // As OpenEndpoint::share_node().
  std::size_t share_node(std::size_t processes);
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
  void ask_to_disconnect(PeerState& peer, bool shortage);
  bool ends(PeerState& peer);

  Connections& connections_;
  Replies& replies_;
  const std::size_t asked_;
  std::size_t most_;  // the limit of connections; 0: none
  std::size_t node_processes_ = 0;
  std::vector<PeerState*> disconnecting_;  // peers that have sent DISCONNECT
  Clock::time_point make_room_again_{};
};

}  // namespace farside
