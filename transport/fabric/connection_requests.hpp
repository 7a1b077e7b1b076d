// SPDX-License-Identifier: BSD-3-Clause
// ConnectionRequests: the requests of this process to connect. At most kMostInitiated requests are under way. Requests
// to further peers wait in a queue, so that a thousand first operations do not flood the peers' listeners. An attempt
// that failed with a transient error is repeated after a back-off, until Fabric abandons the peer.
//
// Opening an endpoint may wait until the peer's address is resolved. Separate threads then open it
// (endpoint_opener.hpp), and take_opened() requests the connection when the endpoint is open. No request is under way
// before that, so a connection request of the peer simply replaces it. fi_connect does not wait: over TCP it calls
// connect(2) on a socket that does not block.
//
// Not thread-safe: Fabric's mutex guards it. Errors: kept in KnownPeer (last_error, failed). Cost: over TCP 40 us per
// attempt, over an adapter two switches between threads. Memory: 8 bytes per peer that waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <sys/types.h>

#include "transport/base/address.hpp"
#include "transport/fabric/connection_endpoints.hpp"
#include "transport/fabric/connection_room.hpp"
#include "transport/fabric/connection_table.hpp"
#include "transport/fabric/endpoint_opener.hpp"
#include "transport/fabric/message_ring.hpp"

namespace farside {

class ConnectionRequests {
 public:
  using Clock = Connection::Clock;
  // Requests that may be under way at once, their endpoints being opened included.
  static constexpr std::size_t kMostInitiated = 32;

  // All must outlive this object. `openers`: the most threads that open endpoints; 0: the caller opens them. `opened`:
  // called by these threads when take_opened() has something to do.
  ConnectionRequests(ConnectionTable& table, ConnectionRoom& room, const ConnectionEndpoints& endpoints,
                     const FabricAddress& own, MessageRings& rings, std::size_t openers, std::function<void()> opened);

  // Requests a connection to the peer, as soon as there is a place and the peer's back-off has ended. Precondition: it
  // has no connection.
  void ask(Peer peer);
  // Connects to the peers that wait, as far as there are places. An error stays in KnownPeer, for the next operation.
  void connect_waiting();
  // Takes the endpoints that threads have opened. Returns whether there were any.
  bool take_opened();
  // Withdraws the request whose endpoint is being opened. Returns whether there was one.
  bool cancel_opening(Peer peer);
  // Removes the request to an abandoned peer.
  void stop(Peer peer);
  // Ends the threads.
  void end() { opener_.reset(); }

  // Returns whether the peer waits for a place, or behind other peers for a thread that opens endpoints.
  bool waits_for_place(Peer peer) const {
    const KnownPeer& known = table_.of(peer);
    return known.waits || (known.opening && !opener_->begun(peer));
  }
  bool any_waiting() const { return !waiting_.empty(); }
  // How many peers' endpoints are being opened.
  std::size_t opening() const { return opening_; }
  // The requests of this process to any peer so far.
  std::uint64_t attempts() const { return attempts_; }

 private:
  ssize_t connect(Peer peer);
  ssize_t request(Peer peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring);
  void not_connected(KnownPeer& known, ssize_t code);

  ConnectionTable& table_;
  ConnectionRoom& room_;
  const ConnectionEndpoints& endpoints_;
  const FabricAddress& own_;
  MessageRings& rings_;
  std::uint64_t attempts_ = 0;
  std::deque<Peer> waiting_;                // for a place; entries without KnownPeer::waits are void
  std::size_t opening_ = 0;                 // peers with KnownPeer::opening
  std::unique_ptr<EndpointOpener> opener_;  // null: endpoints are opened here
};

}  // namespace farside
