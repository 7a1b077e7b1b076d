// SPDX-License-Identifier: BSD-3-Clause
// The libfabric endpoints by which a process reaches its peers and is reached: one for all (datagram_endpoint.hpp), or one
// for each peer, connected when it is first needed (connected_endpoints.hpp). Not thread-safe: Fabric calls it under its mutex.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/result.hpp"
#include "transport/fabric/address.hpp"
#include "transport/fabric/handles.hpp"

namespace farside {

class Endpoints {
 public:
  // What an endpoint needs. They belong to the caller and outlive it.
  struct Domain {
    fi_info* info;
    fid_fabric* fabric;
    fid_domain* domain;
    fid_cq* queue;            // of everything that completes
  };
  // Of the kind that `domain.info` names. `lost`: the connection to a peer has ended; what was under way towards it fails by
  // itself, but no more answers will come.
  static Result<std::unique_ptr<Endpoints>> open(const Domain& domain, std::function<void(Peer, const std::string&)> lost);

  Endpoints() = default;
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;
  virtual ~Endpoints() = default;

  // By which peers reach this process.
  const FabricAddress& address() const { return address_; }
  // Makes a peer known; the same address is the same peer. Peers are small numbers.
  virtual Result<Peer> insert(const FabricAddress& address) = 0;

  struct To {
    fid_ep* endpoint;
    fi_addr_t address;
  };
  enum class What { kOwn, kAnswer };
  // How a peer is reached now, by what this process wants or by answers to what the peer wants. 0, or what libfabric's calls
  // return: -FI_EAGAIN while it is being connected to, or parted from.
  virtual ssize_t reach(Peer peer, To& to, What what = What::kOwn) = 0;
  // Where receives are posted; completions do not say from which peer.
  virtual fid_ep* receiver() const = 0;
  // Of the one there is for all, for questions about what the provider can do (fi_atomic(3)); null if there is none.
  virtual fid_ep* any() const { return nullptr; }

  // Connection events, if there are any; whether there were.
  virtual bool progress() { return false; }
  // Whether some connection is being made, so that whoever waits should call progress.
  virtual bool connecting() const { return false; }
  // How many connections to peers there are or are being made, those that are parted from not counted, and how long the one to the peer has been there; zero if there is none, or it is not to end.
  virtual std::size_t connections() const { return 0; }
  virtual std::chrono::steady_clock::duration age(Peer) const { return {}; }
  // Both sides of a connection call it by the same number, unlike that of any other.
  virtual std::uint64_t number(Peer) const { return 0; }
  // Nothing new goes to the peer by the connection of this number but answers: to whom, if it is the present one.
  virtual std::optional<Peer> begin_parting(std::uint64_t /*number*/) { return {}; }
  // Then, when nothing is under way any more, the end of it. The next operation connects again. False if the connection is still
  // being made.
  virtual bool part(Peer) { return true; }
  // The queue of connection events and its file descriptor; null and -1 if there is none.
  virtual fid* events() const { return nullptr; }
  virtual int events_fd() const { return -1; }
  // Nothing is under way towards the peer: what is left of lost connections to it may go.
  virtual void clear_lost(Peer) {}
  // Something has failed on `endpoint`, by which the peer was reached. Where that is the end of a connection, as of all that goes
  // by adapters, it is lost.
  virtual void failed(Peer, const fid_ep* /*endpoint*/, const std::string& /*why*/) {}
  // The peer is given up: an adapter must not go on with what is under way. `lost` is not called.
  virtual void stop(Peer) {}

 protected:
  FabricAddress address_;
};

}  // namespace farside
