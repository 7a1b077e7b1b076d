// SPDX-License-Identifier: BSD-3-Clause
// ConnectionTable: the peers that a process knows, and its connections to them, in all their states. A peer has at most
// one present connection; connections that have ended stay in the table until nothing is in flight on them.
//
// It closes endpoints, and calls nothing else of libfabric. Not thread-safe: Fabric's mutex guards it. Errors: none.
// Cost: constant for each call, but for the templates, which go over the connections. Memory: 72 bytes per peer and 48
// in a map, and about 140 per connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/message_ring.hpp"

namespace farside {

struct Connection {
  using Clock = std::chrono::steady_clock;
  // kConnecting: this process has sent a request; kAccepting: it has accepted the peer's; kDisconnecting: only answers
  // are sent on it.
  enum class State : std::uint8_t { kConnecting, kAccepting, kConnected, kDisconnecting, kEnded };

  std::unique_ptr<MessageRing> ring;  // null if there is none; freed behind the endpoint, which may write to it
  FabricHandle<fid_ep> endpoint;
  Peer peer = 0;
  std::uint64_t number = 0;
  State state = State::kConnecting;
  bool in_order = false;         // the peer's DISCONNECT has arrived: its end is no interruption
  bool disconnect_sent = false;  // this process sends nothing more, but answers
  bool initiated = false;        // by this process
  bool to_disconnect = false;
  bool counted = false;       // in ConnectionTable::not_closing()
  int socket = -1;            // over TCP, once it was found
  std::uint32_t place = 0;    // among those that have ended
  Clock::time_point since{};  // time of connecting; in kDisconnecting of its beginning
  bool carries() const { return state == State::kConnected || state == State::kDisconnecting; }
};

struct KnownPeer {
  FabricAddress address;
  Connection* current = nullptr;
  Connection::Clock::time_point not_before{};  // of the next attempt
  std::uint64_t attempt = 0;                   // the peer's latest known attempt: later ones are newer than `current`
  std::uint16_t refused = 0;                   // attempts since the last connection, which lengthen the back-off
  std::uint16_t last_error = 0;                // libfabric's error of the last attempt
  bool waits = false;                          // for a place among the requests in flight (connecting.hpp)
  bool opening = false;                        // its endpoint was requested from a thread; `current` is null
  bool failed = false;                         // the last attempt had a lasting error, and no operation has reported it

  // Delays the next attempt: by 1 ms at first, and by up to 100 ms.
  void back_off(Connection::Clock::time_point now);
};

class ConnectionTable {
 public:
  using Clock = Connection::Clock;
  using State = Connection::State;

  // The identity of this process. The two ends of a connection to itself do not count towards limits.
  void set_own_identity(std::uint64_t identity) { own_identity_ = identity; }
  // `withdraw` is called before the present connection to a peer stops carrying this process's operations.
  void set_withdraw(std::function<void(Peer)> withdraw) { withdraw_ = std::move(withdraw); }
  // `call` posts the receives for so many connections. expect_one_more() calls it before a connection is requested or
  // accepted, since the peer may send as soon as there is one.
  void set_before_more(std::function<void(std::size_t connections)> call) { before_more_ = std::move(call); }
  void expect_one_more() const {
    if (before_more_) before_more_(not_closing_ + 1);
  }

  // Makes a peer known; the same identity is the same peer. Peers are small numbers. insert() notes its address.
  Peer find(std::uint64_t identity);
  Peer insert(const FabricAddress& address);
  // The same, without making it known.
  std::optional<Peer> find_known(std::uint64_t identity) const;
  // Returns the peer whose present connection has this number.
  std::optional<Peer> peer_of(std::uint64_t number) const;
  KnownPeer& of(Peer peer) { return peers_[peer]; }
  const KnownPeer& of(Peer peer) const { return peers_[peer]; }
  bool is_self(Peer peer) const { return peers_[peer].address.identity == own_identity_; }

  // Adds a connection in kConnecting or kAccepting. It is not the present one yet.
  Connection& add(FabricHandle<fid_ep> endpoint, Peer peer, State state, bool initiated, std::uint64_t number,
                  std::unique_ptr<MessageRing> ring = nullptr);
  // Returns the connection of this endpoint; null if there is none.
  Connection* find(const fid* endpoint) const;
  void set_current(Peer peer, Connection* connection);
  // The connection carries operations from now on.
  void established(Connection& connection);
  // From now on only answers are sent on it.
  void begin_disconnect(Connection& connection);
  // It is not the present connection to its peer any more. The next attempt to connect is delayed.
  void forget(Connection& connection);
  // Puts it into kEnded, and returns its state before.
  State end(Connection& connection);
  // Closes its endpoint, and forgets it. Precondition: it is in kEnded.
  void close(Connection& connection);
  // Closes the ended connections of those peers for which idle(peer) says that nothing is in flight towards them.
  template <class Idle>
  void close_ended(Idle&& idle) {
    for (std::size_t i = ended_.size(); i-- > 0;) {
      if (idle(ended_[i]->peer)) close(*ended_[i]);
    }
  }
  // Closes all.
  void clear() {
    with_ring_.clear();
    connections_.clear();
  }
  // The connections with a ring that have not ended. Messages may be in it before the connection is established here.
  std::span<Connection* const> with_ring() const { return with_ring_; }

  // Calls act(Connection&) for each present connection, or for each in any state.
  template <class Do>
  void for_each_present(Do&& act) const {
    for (const auto& [_, connection] : connections_) {
      if (peers_[connection->peer].current == connection.get()) act(*connection);
    }
  }
  template <class Do>
  void for_each(Do&& act) const {
    for (const auto& [_, connection] : connections_) act(*connection);
  }

  std::size_t size() const { return connections_.size(); }
  // How many connections to other processes exist or are being made, without those that are being closed.
  std::size_t not_closing() const { return not_closing_; }
  // How many are in kConnecting or kAccepting, and how many in kConnecting.
  std::size_t in_progress() const { return in_progress_; }
  std::size_t initiated() const { return initiated_; }
  bool any_ended() const { return !ended_.empty(); }

 private:
  void no_longer_in_progress(State state);
  void stop_counting(Connection& connection);
  void withdraw(const Connection& connection);

  std::uint64_t own_identity_ = 0;
  std::function<void(Peer)> withdraw_;
  std::function<void(std::size_t)> before_more_;
  std::vector<KnownPeer> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::unordered_map<const fid*, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, Peer> by_number_;  // of the present connections
  std::vector<Connection*> ended_;                     // in kEnded
  std::vector<Connection*> with_ring_;                 // not in kEnded
  std::size_t not_closing_ = 0;
  std::size_t in_progress_ = 0;
  std::size_t initiated_ = 0;
};

}  // namespace farside
