// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connection_table.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/timing.hpp"

namespace farside {

void KnownPeer::back_off(Connection::Clock::time_point now) {
  constexpr std::uint16_t kDoublings = 7;
  not_before =
      now + std::min<Timing::Milliseconds>(Timing::kConnectAgain * (1U << refused), Timing::kConnectAgainLongest);
  if (refused < kDoublings) ++refused;
}

Peer ConnectionTable::find(std::uint64_t identity) {
  const auto [found, added] = by_identity_.try_emplace(identity, peers_.size());
  if (added) peers_.emplace_back().address.identity = identity;
  return found->second;
}

Peer ConnectionTable::insert(const FabricAddress& address) {
  // The peer may have connected before its address was inserted.
  const Peer peer = find(address.identity);
  peers_[peer].address = address;
  return peer;
}

std::optional<Peer> ConnectionTable::find_known(std::uint64_t identity) const {
  const auto found = by_identity_.find(identity);
  if (found == by_identity_.end()) return {};
  return found->second;
}

std::optional<Peer> ConnectionTable::peer_of(std::uint64_t number) const {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return {};
  return found->second;
}

Connection& ConnectionTable::add(FabricHandle<fid_ep> endpoint, Peer peer, State state, bool initiated,
                                 std::uint64_t number, std::unique_ptr<MessageRing> ring) {
  const fid* const key = &endpoint->fid;
  auto connection = std::make_unique<Connection>();
  connection->ring = std::move(ring);
  if (connection->ring != nullptr) with_ring_.push_back(connection.get());
  connection->endpoint = std::move(endpoint);
  connection->peer = peer;
  connection->number = number;
  connection->state = state;
  connection->initiated = initiated;
  connection->counted = !is_self(peer);
  if (connection->counted) ++not_closing_;
  ++in_progress_;
  if (state == State::kConnecting) ++initiated_;
  return *(connections_[key] = std::move(connection));
}

Connection* ConnectionTable::find(const fid* endpoint) const {
  const auto found = connections_.find(endpoint);
  return found == connections_.end() ? nullptr : found->second.get();
}

// Numbers of peers' requests come from the network: where two are equal, peer_of knows the first one.
void ConnectionTable::set_current(Peer peer, Connection* connection) {
  Connection*& current = peers_[peer].current;
  if (current != nullptr) {
    withdraw(*current);
    const auto found = by_number_.find(current->number);
    if (found != by_number_.end() && found->second == peer) by_number_.erase(found);
  }
  current = connection;
  if (connection != nullptr) by_number_.try_emplace(connection->number, peer);
}

void ConnectionTable::established(Connection& connection) {
  no_longer_in_progress(connection.state);
  connection.state = connection.to_disconnect ? State::kDisconnecting : State::kConnected;
  connection.since = Clock::now();
  KnownPeer& known = peers_[connection.peer];
  known.refused = 0;
  known.last_error = 0;
}

void ConnectionTable::begin_disconnect(Connection& connection) {
  connection.to_disconnect = true;
  stop_counting(connection);
  if (connection.state != State::kConnected) return;
  withdraw(connection);
  connection.state = State::kDisconnecting;
  connection.since = Clock::now();
}

void ConnectionTable::forget(Connection& connection) {
  KnownPeer& known = peers_[connection.peer];
  if (known.current != &connection) return;
  set_current(connection.peer, nullptr);
  known.back_off(Clock::now());
}

Connection::State ConnectionTable::end(Connection& connection) {
  withdraw(connection);
  stop_counting(connection);
  if (connection.ring != nullptr) std::erase(with_ring_, &connection);
  if (connection.state != State::kEnded) {
    connection.place = static_cast<std::uint32_t>(ended_.size());
    ended_.push_back(&connection);
  }
  no_longer_in_progress(connection.state);
  return std::exchange(connection.state, State::kEnded);
}

void ConnectionTable::close(Connection& connection) {
  ended_[connection.place] = ended_.back();
  ended_[connection.place]->place = connection.place;
  ended_.pop_back();
  connections_.erase(&connection.endpoint->fid);
}

void ConnectionTable::no_longer_in_progress(State state) {
  if (state == State::kConnecting) --initiated_;
  if (state == State::kConnecting || state == State::kAccepting) --in_progress_;
}

void ConnectionTable::withdraw(const Connection& connection) {
  if (connection.state == State::kConnected && peers_[connection.peer].current == &connection && withdraw_)
    withdraw_(connection.peer);
}

void ConnectionTable::stop_counting(Connection& connection) {
  if (std::exchange(connection.counted, false)) --not_closing_;
}

}  // namespace farside
