// SPDX-License-Identifier: BSD-3-Clause
// The connections of a process to its peers: an endpoint for each (FI_EP_MSG), connected when it is first needed, by
// either side. Each process listens. The ranks of a job tell each other their addresses, identities and secrets through
// the runtime: a request to connect carries the listener's secret, and the answer carries the listener's identity. All
// endpoints share one queue of receives.
//
// When both sides connect to each other at once, the request of the process with the lower identity stands: the other
// process accepts it and drops its own. A refused request is repeated after a back-off, until Fabric gives the peer up.
//
// A process connects only when it has no connection to the peer. So a request that is newer than the connection at hand
// says that the peer has closed that connection, although this side has not heard of it (the cable may have been cut).
// Requests are numbered for this (Hello::attempt).
//
// Not thread-safe: Fabric calls it under its mutex.
#pragma once

#include <chrono>
#include <cstdint>
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
#include "transport/fabric/handles.hpp"

namespace farside {

class Connections {
  using Clock = std::chrono::steady_clock;

 public:
  // What an endpoint needs. They belong to the caller and outlive it.
  struct Domain {
    fi_info* info;
    fid_fabric* fabric;
    fid_domain* domain;
    fid_cq* queue;            // of everything that completes
  };
  // The connection to a peer has ended: operations on it fail by themselves, and no answer of the peer comes by it any
  // more.
  using Lost = std::function<void(Peer, const std::string&)>;
  static Result<std::unique_ptr<Connections>> open(const Domain& domain, Lost lost);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  // By which peers reach this process.
  const FabricAddress& address() const { return address_; }
  // Makes a peer known; the same address is the same peer. Peers are small numbers.
  Peer insert(const FabricAddress& address);

  enum class What { kOwn, kAnswer };
  // The endpoint by which the peer is reached now, for this process's own operations or for answers to those of the
  // peer. 0, or what libfabric's calls return: -FI_EAGAIN while a connection is being made, or while it is being
  // closed.
  ssize_t reach(Peer peer, fid_ep*& endpoint, What what = What::kOwn);
  // Where receives are posted; completions do not say from which peer.
  fid_ep* receiver() const { return receives_.get(); }
  // Handles connection events. Returns whether there were any.
  bool progress();
  // Whether some connection is being made: then a thread that waits should call progress.
  bool connecting() const { return in_progress_ > 0; }
  // Why the last attempt to connect to the peer has failed; empty if it has not.
  const std::string& trouble(Peer peer) const { return peers_[peer].trouble; }
  // The number of connections that exist or are being made, without those that are being closed.
  std::size_t count() const { return to_stay_; }
  // How long the connection to the peer has existed; zero if there is none, or if it is not to be closed.
  Clock::duration age(Peer peer) const;
  // Both sides of a connection call it by the same number, unlike that of any other.
  std::uint64_t number(Peer peer) const;
  // Nothing new is sent by the connection of this number, except answers. Returns its peer, if it is the present
  // connection to that one.
  std::optional<Peer> begin_disconnect(std::uint64_t number);
  // Closes it, when nothing is under way on it any more. The next operation connects again. False if the connection is
  // still being made.
  bool part(Peer peer);
  // The queue of connection events and its file descriptor.
  fid* events() const { return &events_->fid; }
  int events_fd() const { return events_fd_; }
  // Nothing is under way towards the peer: frees its lost connections.
  void clear_lost(Peer peer);
  // An operation on `endpoint`, by which the peer was reached, has failed. An adapter's queue pair takes nothing more
  // after that, and no event says so: the connection is lost.
  void failed(Peer peer, const fid_ep* endpoint, const std::string& why);
  // The peer is given up: ends the connection to it, whatever its state, so that the provider does not touch the
  // buffers of operations that are under way on it any more. They complete with errors. `lost` is not called.
  void stop(Peer peer);

 private:
  // What both sides tell each other when they connect (fi_cm(3)'s private data).
  struct Hello {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t from;       // identity of the sender
    std::uint64_t secret;     // of the listener; 0 in its answer
    std::uint64_t number;     // of the connection: random, by the side that connects
    std::uint64_t
        attempt;  // how often the sender has connected to any peer, this time included; in an answer: until now
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
    Clock::time_point since{};        // connected
    bool carries() const { return state == State::kConnected || state == State::kDisconnecting; }
  };
  struct Known {
    FabricAddress address;
    Connection* current = nullptr;
    Clock::time_point not_before{};   // of the next attempt
    std::uint32_t refused = 0;        // in a row
    std::string trouble;              // of the last attempt
    std::uint64_t attempt = 0;        // the peer's latest that is known: later ones are newer than `current`
  };

  Connections(const Domain& domain, Lost lost);
  Status set_up();
  Peer find(std::uint64_t identity);
  ssize_t open_endpoint(fi_info* info, FabricHandle<fid_ep>& out);
  Connection* add(FabricHandle<fid_ep> endpoint, Peer peer, State state, bool initiated, std::uint64_t number);
  ssize_t connect(Peer peer);
  void take_request(fi_info* info, const Hello* hello);
  void established(Connection& connection, const Hello* hello);
  void ended(Connection& connection, const std::string& why);
  void shut_down(Connection& connection);
  void forget(Connection& connection);
  static void back_off(Known& known);
  State end(Connection& connection);
  void stop_counting(Connection& connection);
  void close(Connection& connection);
  void take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes);
  void take_error();

  Domain domain_;
  const bool by_adapter_;
  Lost lost_;
  FabricAddress address_;
  std::uint64_t attempts_ = 0;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;                    // shared by all endpoints
  FabricHandle<fid_pep> listener_;
  std::vector<Known> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::unordered_map<fid*, std::unique_ptr<Connection>> connections_;
  std::size_t to_stay_ = 0;  // connections to peers that are neither disconnected from nor in kEnded
  std::size_t in_progress_ = 0;                      // connections in kConnecting or kAccepting
};

}  // namespace farside
