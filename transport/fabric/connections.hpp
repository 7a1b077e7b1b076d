// SPDX-License-Identifier: BSD-3-Clause
// Connections: the connections of a process to its peers, one endpoint (FI_EP_MSG) each, which either side connects
// at the first operation. Each process listens. The ranks of a job exchange their addresses, identities and secrets
// through the runtime: a connection request carries the listener's secret, and the answer carries the listener's
// identity. All endpoints share one queue of receives.
//
// When both sides connect at once, the request of the process with the lower identity stands: the other process
// accepts it and drops its own. A refused request is repeated after a back-off, until Fabric abandons the peer.
//
// A process has at most kMostInitiated requests under way. Further peers wait in the order in which they were first
// asked for, and each gets the next free place, so that a thousand first operations do not flood the peers' listeners.
//
// A process connects only when it has no connection to the peer. A request that is newer than the present connection
// therefore says that the peer has closed that connection, although this side saw no event (the cable may have been
// cut). Requests are numbered for this (Hello::attempt).
//
// Opening an endpoint may wait until the peer's address is resolved. Then a thread of its own does it
// (endpoint_opener.hpp), and progress() requests the connection when the endpoint is there. No request is under way
// before, so a peer's own request just takes its place. No other call of libfabric here waits for a peer.
//
// Not thread-safe: Fabric calls it under its mutex. Cost of reach on a connected peer: a few loads. Memory: 72 bytes
// per peer and 48 in a map, and about 140 per connection, without what libfabric keeps.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/descriptor_limit.hpp"
#include "transport/fabric/endpoint_opener.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/tcp_path.hpp"

namespace farside {

class Connections {
  using Clock = std::chrono::steady_clock;

 public:
  // The libfabric objects that endpoints need. They belong to the caller and must outlive this object.
  struct Domain {
    fi_info* info;
    fid_fabric* fabric;
    fid_domain* domain;
    fid_cq* queue;            // of all completions
    std::size_t receives = 0; // that the shared queue shall hold; 0: libfabric's default
  };
  // Called when the connection to a peer has ended: the provider fails operations on it, and no reply arrives by it
  // any more.
  using Lost = std::function<void(Peer, const std::string&)>;
  // How the endpoints for this process's own requests are opened.
  struct Opening {
    // By a thread of its own, else by reach() and progress().
    bool by_thread = false;
    // Called by that thread when progress() has an endpoint to take.
    std::function<void()> opened;
    // For tests: called before an endpoint is opened, in place of a resolution of the address. A negative libfabric
    // code is the result.
    std::function<int(const SocketAddress&)> resolve;
  };
  // Errors: kNoRoute.
  static Result<std::unique_ptr<Connections>> open(const Domain& domain, Lost lost, Opening opening);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  // The address by which peers reach this process.
  const FabricAddress& address() const { return address_; }
  // Makes a peer known; the same address is the same peer. Peers are small numbers.
  Peer insert(const FabricAddress& address);
  const FabricAddress& address_of(Peer peer) const { return peers_[peer].address; }

  // Requests of this process that may be under way at once, their endpoints being opened included.
  static constexpr std::size_t kMostInitiated = 32;

  // Returns the peer of this identity, if it has connected to this process or was connected to.
  std::optional<Peer> find_connected(std::uint64_t identity) const;

  enum class What { kOwn, kAnswer };
  // Gives the endpoint of the peer, for this process's own operations or for answers to the peer's, and connects if
  // necessary. Returns 0 or a negative libfabric code: -FI_EAGAIN while a connection is being made or closed, waits for
  // a place or for the next attempt. The caller must call it again until then.
  ssize_t reach(Peer peer, fid_ep*& endpoint, What what = What::kOwn);
  // The queue in which receives are posted; completions do not name the peer.
  fid_ep* receiver() const { return receives_.get(); }
  // How many receives it holds: what was asked for, or libfabric's default if an adapter has no room for that.
  std::size_t most_receives() const { return most_receives_; }
  // Handles connection events. Returns whether there were any.
  bool progress();
  // Returns whether some connection has ended and was not freed yet (clear_lost).
  bool any_lost() const { return !ended_.empty(); }
  // Returns whether some connection is being made; a waiting thread should then call progress.
  bool connecting() const { return in_progress_ > 0 || opening_ > 0; }
  // Returns whether the peer waits for a place among the requests that are under way, or behind other peers for the
  // thread that opens endpoints. Nothing was tried yet that could show whether it is in reach.
  bool waits_for_place(Peer peer) const {
    return peers_[peer].waits || (peers_[peer].opening && !opener_->begun(peer));
  }
  // Returns how many connections the process may have if so many processes of its node, with this one, share what there
  // is for connections: over TCP descriptors, else the queue pairs of the adapter. (All connections of a process use
  // one completion queue.) 0: any number, because the provider does not say how many queue pairs there are.
  std::size_t most_connections(std::size_t processes) const;
  // Returns whether the process, or its node, had no descriptor or no memory for a connection since the last
  // clear_shortage(). Then connections that are not used should be closed.
  bool shortage() const { return shortage_; }
  void clear_shortage() { shortage_ = false; }
  // Notes a shortage if the process has no descriptor left. Called when events_fd() was readable without an event: the
  // provider's listener may have failed to accept a peer's connection, which it does not report.
  void look_for_shortage();
  // The error of the last attempt to connect to the peer; empty if it succeeded.
  std::string trouble(Peer peer) const { return peers_[peer].trouble == 0 ? "" : fi_strerror(peers_[peer].trouble); }
  // The number of connections that exist or are being made, without those that are being closed.
  std::size_t count() const { return to_stay_ + opening_; }
  // Returns whether there is a connection to the peer that carries operations.
  bool connected(Peer peer) const { return peers_[peer].current != nullptr && peers_[peer].current->carries(); }
  // The age of the connection to the peer; zero if there is none, or if it must not be evicted.
  Clock::duration age(Peer peer) const;
  // The number of the present connection, the same on both sides and unlike that of any other; 0 if there is none.
  std::uint64_t number(Peer peer) const;
  // Where the peer is connected over TCP: the connection's number, its ends, and its descriptor if it was found before,
  // else -1.
  struct TcpPath {
    std::uint64_t number;
    TcpEnds ends;
    int socket;
  };
  std::optional<TcpPath> tcp_path(Peer peer) const;
  // Notes the descriptor of the present connection to the peer.
  void found_socket(Peer peer, int socket);
  // Returns the peer to which the connection of this number is the present one; none if there is no such connection.
  std::optional<Peer> peer_of(std::uint64_t number) const;
  // From now on only answers are sent on the present connection to the peer. Precondition: there is one.
  void begin_disconnect(Peer peer);
  // Closes a connection after begin_disconnect. Precondition: none of this process's operations is under way on it.
  // The next operation connects again. Returns false if the connection is still being made.
  bool disconnect(Peer peer);
  // The queue of connection events and its file descriptor.
  fid* events() const { return &events_->fid; }
  int events_fd() const { return events_fd_; }
  // Frees the ended connections of those peers for which idle(peer) says that nothing is under way towards them.
  template <class Idle>
  void clear_lost(Idle&& idle) {
    for (std::size_t i = ended_.size(); i-- > 0;) {
      if (idle(ended_[i]->peer)) close(*ended_[i]);
    }
  }
  // Calls act(peer) for each peer with a present connection.
  template <class Do>
  void for_each_peer(Do&& act) const {
    for (const auto& [_, connection] : connections_) {
      if (peers_[connection->peer].current == connection.get()) act(connection->peer);
    }
  }
  // Notes that an operation on `endpoint`, by which the peer was reached, has failed. An adapter's queue pair takes
  // nothing more after that, and no event says so: the connection is lost.
  void failed(Peer peer, const fid_ep* endpoint, const std::string& why);
  // Ends the connection to an abandoned peer, in any state, so that the provider no longer touches the buffers of
  // operations that are under way on it. They complete with errors. `lost` is not called.
  void stop(Peer peer);

 private:
  // The data that both sides send when they connect (the private data of fi_cm(3)).
  struct Hello {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t from;       // identity of the sender
    std::uint64_t secret;     // of the listener; 0 in its answer
    std::uint64_t number;     // of the connection: random, chosen by the side that connects
    std::uint64_t
        attempt;  // the sender's attempts to connect to any peer so far, this request included
  };
  enum class State : std::uint8_t { kConnecting, kAccepting, kConnected, kDisconnecting, kEnded };
  struct Connection {
    FabricHandle<fid_ep> endpoint;
    Peer peer = 0;
    std::uint64_t number = 0;
    State state = State::kConnecting;
    bool initiated = false;
    bool to_disconnect = false;
    bool counted = false;             // in to_stay_
    int socket = -1;                  // over TCP, once it was found
    std::uint32_t place = 0;          // in ended_
    Clock::time_point since{};        // time of connecting
    bool carries() const { return state == State::kConnected || state == State::kDisconnecting; }
  };
  struct Known {
    FabricAddress address;
    Connection* current = nullptr;
    Clock::time_point not_before{};   // of the next attempt
    std::uint64_t attempt = 0;        // the peer's latest known attempt: later ones are newer than `current`
    std::uint16_t refused = 0;        // attempts since the last connection, which lengthen the back-off
    std::uint16_t trouble = 0;        // libfabric's error of the last attempt
    bool waits = false;               // for a place; it is in waiting_
    bool opening = false;             // its endpoint was requested from opener_; `current` is null
    bool failed = false;              // the last attempt had an error that does not pass, and nobody was told
  };

  Connections(const Domain& domain, Lost lost, Opening opening);
  Status set_up();
  Peer find(std::uint64_t identity);
  ssize_t open_endpoint(fi_info* info, FabricHandle<fid_ep>& out) const;
  ssize_t open_towards(const SocketAddress& address, FabricHandle<fid_ep>& out) const;
  Connection* add(FabricHandle<fid_ep> endpoint, Peer peer, State state, bool initiated, std::uint64_t number);
  void connect_waiting();
  void note_shortage(int error);
  ssize_t connect(Peer peer);
  ssize_t request(Peer peer, FabricHandle<fid_ep> endpoint);
  void not_connected(Known& known, ssize_t code);
  bool take_opened();
  void cancel_opening(Peer peer);
  void set_current(Peer peer, Connection* connection);
  void take_request(fi_info* info, const Hello* hello);
  void established(Connection& connection, const Hello* hello);
  void ended(Connection& connection, const std::string& why);
  void shut_down(Connection& connection);
  void forget(Connection& connection);
  static void back_off(Known& known);
  State end(Connection& connection);
  void no_longer_in_progress(State state);
  void stop_counting(Connection& connection);
  void close(Connection& connection);
  void take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes);
  void take_error();

  Domain domain_;
  const bool by_adapter_;
  Lost lost_;
  Opening how_to_open_;
  FabricAddress address_;
  std::uint64_t attempts_ = 0;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;                    // shared by all endpoints
  std::size_t most_receives_ = 0;
  FabricHandle<fid_pep> listener_;
  std::vector<Known> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::unordered_map<fid*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, Peer> by_number_;  // of the present connections
  std::vector<Connection*> ended_;                   // in kEnded
  DescriptorLimit descriptors_;
  std::size_t to_stay_ = 0;  // connections to other processes that are neither being evicted nor in kEnded
  std::size_t in_progress_ = 0;                      // connections in kConnecting or kAccepting
  std::size_t initiated_ = 0;                        // connections in kConnecting
  std::deque<Peer> waiting_;                         // for a place; entries without Known::waits are void
  std::size_t opening_ = 0;                          // peers with Known::opening
  bool shortage_ = false;
  std::unique_ptr<EndpointOpener> opener_;           // null: endpoints are opened here
};

}  // namespace farside
