// SPDX-License-Identifier: BSD-3-Clause
// ConnectionTable: the peers that a process knows, and its connections to them, in all their states. A peer has at most
// one present connection; connections that have ended stay in the table until nothing is in flight on them.
//
// It closes endpoints, and calls nothing else of libfabric. Not thread-safe: Fabric's mutex guards it. Errors: none.
// Cost: constant for each call, but for peer_of() and the templates, which go over the connections. Memory: 72 bytes
// per peer and 48 in a map, and about 140 per connection.
#pragma once

#include <algorithm>
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
#include "transport/base/timing.hpp"
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
  bool sought = false;        // its socket was
  int socket = -1;            // over TCP, once it was found
  Clock::time_point since{};  // time of connecting; in kDisconnecting of its beginning
  bool carries() const { return state == State::kConnected || state == State::kDisconnecting; }
  bool in_progress() const { return state == State::kConnecting || state == State::kAccepting; }
};

struct KnownPeer {
  FabricAddress address;
  Connection* current = nullptr;
  Connection::Clock::time_point not_before{};  // of the next attempt
  std::uint64_t attempt = 0;                   // the peer's latest known attempt: later ones are newer than `current`
  std::uint16_t refused = 0;                   // attempts since the last connection, which lengthen the back-off
  std::uint16_t last_error = 0;                // libfabric's error of the last attempt
  bool waits = false;                          // for a place among the requests in flight (connections.hpp)
  bool failed = false;                         // the last attempt had a lasting error, and no operation has reported it

  // Delays the next attempt: by 1 ms at first, and by up to 100 ms.
  void back_off(Connection::Clock::time_point now) {
    constexpr std::uint16_t kDoublings = 7;
    not_before =
        now + std::min<Timing::Milliseconds>(Timing::kConnectAgain * (1U << refused), Timing::kConnectAgainLongest);
    if (refused < kDoublings) ++refused;
  }
};

class ConnectionTable {
 public:
  using Clock = Connection::Clock;
  using State = Connection::State;

  // The identity of this process. The two ends of a connection to itself do not count towards limits.
  std::uint64_t own_identity = 0;
  // Called before the present connection to a peer stops carrying this process's operations.
  std::function<void(Peer)> withdraw;

  // Makes a peer known; the same identity is the same peer. Peers are small numbers. insert() notes its address, before
  // or after the peer has connected.
  Peer find(std::uint64_t identity) {
    const auto [found, added] = by_identity_.try_emplace(identity, peers_.size());
    if (added) peers_.emplace_back().address.identity = identity;
    return found->second;
  }
  Peer insert(const FabricAddress& address) {
    const Peer peer = find(address.identity);
    peers_[peer].address = address;
    return peer;
  }
  // The same, without making it known: it was inserted, or it has connected to this process.
  std::optional<Peer> find_known(std::uint64_t identity) const {
    const auto found = by_identity_.find(identity);
    return found != by_identity_.end() ? std::optional(found->second) : std::nullopt;
  }
  // Returns the peer whose present connection has this number.
  std::optional<Peer> peer_of(std::uint64_t number) const {
    for (const auto& [_, connection] : connections_) {
      if (connection->number == number && is_present(*connection)) return connection->peer;
    }
    return {};
  }
  KnownPeer& of(Peer peer) { return peers_[peer]; }
  const KnownPeer& of(Peer peer) const { return peers_[peer]; }
  bool is_self(Peer peer) const { return peers_[peer].address.identity == own_identity; }

  // Adds a connection in kConnecting or kAccepting. It is the present one from now on, unless it is the accepting end
  // of a connection of this process to itself.
  Connection& add(FabricHandle<fid_ep> endpoint, Peer peer, State state, std::uint64_t number,
                  std::unique_ptr<MessageRing> ring = nullptr) {
    std::unique_ptr<Connection>& connection = connections_[&endpoint->fid];
    connection = std::make_unique<Connection>();
    if (ring != nullptr) with_ring_.push_back(connection.get());
    connection->ring = std::move(ring);
    connection->endpoint = std::move(endpoint);
    connection->peer = peer;
    connection->number = number;
    connection->state = state;
    connection->initiated = state == State::kConnecting;
    connection->counted = !is_self(peer);
    not_closing_ += connection->counted;
    ++in_progress_;
    initiated_ += connection->initiated;
    if (connection->initiated || connection->counted) set_current(peer, connection.get());
    return *connection;
  }
  // Returns the connection of this endpoint; null if there is none.
  Connection* find(const fid* endpoint) const {
    const auto found = connections_.find(endpoint);
    return found == connections_.end() ? nullptr : found->second.get();
  }
  // The connection carries operations from now on.
  void established(Connection& connection) {
    no_longer_in_progress(connection);
    connection.state = connection.to_disconnect ? State::kDisconnecting : State::kConnected;
    connection.since = Clock::now();
    peers_[connection.peer].refused = 0;
    peers_[connection.peer].last_error = 0;
  }
  // From now on only answers are sent on it.
  void begin_disconnect(Connection& connection) {
    connection.to_disconnect = true;
    stop_counting(connection);
    if (connection.state != State::kConnected) return;
    stop_operations(connection);
    connection.state = State::kDisconnecting;
    connection.since = Clock::now();
  }
  // Puts it into kEnded. If it is the present connection to its peer, there is none any more, and the next attempt to
  // connect is delayed.
  void end(Connection& connection) {
    if (is_present(connection)) {
      set_current(connection.peer, nullptr);
      peers_[connection.peer].back_off(Clock::now());
    }
    if (connection.state == State::kEnded) return;
    stop_counting(connection);
    no_longer_in_progress(connection);
    if (connection.ring != nullptr) std::erase(with_ring_, &connection);
    ended_.push_back(&connection);
    connection.state = State::kEnded;
  }
  // Closes its endpoint, and forgets it. Precondition: it is in kEnded.
  void close(Connection& connection) {
    std::erase(ended_, &connection);
    connections_.erase(&connection.endpoint->fid);
  }
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
      if (is_present(*connection)) act(*connection);
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

 private:
  void set_current(Peer peer, Connection* connection) {
    Connection*& current = peers_[peer].current;
    if (current != nullptr) stop_operations(*current);
    current = connection;
  }
  bool is_present(const Connection& connection) const { return peers_[connection.peer].current == &connection; }
  void no_longer_in_progress(const Connection& connection) {
    in_progress_ -= connection.in_progress();
    initiated_ -= connection.state == State::kConnecting;
  }
  void stop_operations(const Connection& connection) {
    if (connection.state == State::kConnected && is_present(connection) && withdraw) withdraw(connection.peer);
  }
  void stop_counting(Connection& connection) { not_closing_ -= std::exchange(connection.counted, false); }

  std::vector<KnownPeer> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::unordered_map<const fid*, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> ended_;      // in kEnded
  std::vector<Connection*> with_ring_;  // not in kEnded
  std::size_t not_closing_ = 0;
  std::size_t in_progress_ = 0;
  std::size_t initiated_ = 0;
};

}  // namespace farside
