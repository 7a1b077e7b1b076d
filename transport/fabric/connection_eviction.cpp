// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connection_eviction.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/handler/message.hpp"

namespace farside {
namespace {

constexpr std::chrono::milliseconds kShortestIdle{100};  // the lowest idle limit
constexpr std::chrono::seconds kLongestIdle{100};
constexpr int kReopenedSoon = 16;            // in multiples of the idle limit
constexpr std::size_t kPartInShortage = 16;  // of the connections one in so many is closed

// The time without use after which the connection may be evicted.
PeerState::Clock::duration idle_limit(const PeerState& peer_state) {
  return std::max<PeerState::Clock::duration>(peer_state.idle_limit, kShortestIdle);
}

}  // namespace

void ConnectionEviction::share_node(std::size_t processes) {
  if (processes <= node_processes_) return;
  node_processes_ = processes;
  const std::size_t most = connections_.most_connections(processes);
  if (most == 0 || most >= this->most()) return;
  most_.store(most, std::memory_order_relaxed);
  log(LogLevel::kInfo, "FARSIDE_CONNECTIONS={}, but {}, shared by {} processes of the node, admit {} connections",
      asked_, connections_.what_limits(), processes, most);
}

std::vector<ConnectionEviction::Unused> ConnectionEviction::unused(Clock::time_point now) {
  std::vector<Unused> found;
  connections_.for_each_peer([&](Peer peer) {
    PeerState& peer_state = states_.of(peer);
    if (connections_.age(peer) < idle_limit(peer_state)) return;
    const Clock::time_point last_use = PeerStates::last_use(peer_state, now);
    if (now - last_use < kShortestIdle) return;
    end_open_run(peer_state);  // only its completion is missing: the connection can be closed at the next pass
    if (!peer_state.any_under_way()) found.push_back({last_use, &peer_state});
  });
  return found;
}

void ConnectionEviction::make_room() {
  const Clock::time_point now = Clock::now();
  if (now < make_room_again_) return;
  make_room_again_ = now + kRoomAgain;
  std::vector<Unused> candidates = unused(now);
  const std::size_t count = connections_.count();
  std::size_t too_many = most() > 0 && count > most() ? count - most() : 0;
  const bool shortage = connections_.shortage();
  if (shortage) too_many = std::max(too_many, count / kPartInShortage + 1);
  connections_.clear_shortage();
  too_many = std::min(too_many, candidates.size());
  const auto last_ones = candidates.begin() + static_cast<std::ptrdiff_t>(too_many);
  std::partial_sort(candidates.begin(), last_ones, candidates.end(),
                    [](const Unused& a, const Unused& b) { return a.last_use < b.last_use; });
  for (auto each = candidates.begin(); each != last_ones; ++each) ask_to_disconnect(*each->peer_state, shortage);
}

void ConnectionEviction::ask_to_disconnect(PeerState& peer_state, bool shortage) {
  const Peer peer = peer_state.peer;
  {
    // Another thread may have issued meanwhile. Without an endpoint it needs Fabric's mutex first.
    const std::scoped_lock held(peer_state.mutex);
    if (peer_state.under_way > 0) return;
    peer_state.endpoint = nullptr;
  }
  const std::size_t count = connections_.count();
  if (replies_.send(make_disconnect(peer), send_) != 0) return;
  if (shortage) {
    log(LogLevel::kInfo,
        "{} connections, and no descriptor or memory for another: one that was not used is to be "
        "closed",
        count);
  } else {
    log(LogLevel::kInfo, "{} connections, {}={}: one that was not used is to be closed", count,
        most() == asked_ ? "FARSIDE_CONNECTIONS" : "the process's share", most());
  }
  const bool soon = connections_.age(peer) < kReopenedSoon * idle_limit(peer_state);
  peer_state.idle_limit =
      soon ? std::min<Clock::duration>(2 * idle_limit(peer_state), kLongestIdle) : Clock::duration(kShortestIdle);
  connections_.begin_disconnect(peer);
}

std::unique_ptr<Reply> ConnectionEviction::make_disconnect(Peer peer) {
  std::unique_ptr<Reply> request = replies_.take(peer);
  request->header.kind = MessageKind::kDisconnect;
  request->header.operation = connections_.number(peer);
  request->probe = true;  // no warning if it does not arrive
  return request;
}

void ConnectionEviction::leave_all() {
  connections_.for_each_peer([this](Peer peer) {
    if (!connections_.present(peer)->disconnect_sent) replies_.keep(make_disconnect(peer));
  });
}

// When nothing of this process is under way on the connection, ends it if it has sent DISCONNECT before, else sends it
// now. Returns whether it has done so.
bool ConnectionEviction::ends(Peer peer) {
  Connection* const connection = connections_.present(peer);
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->in_order) return true;
  end_open_run(states_.of(peer));
  if (states_.any_issued(peer)) return false;
  if (connection->disconnect_sent) return connections_.disconnect(peer);
  return replies_.send(make_disconnect(peer), send_) != -FI_EAGAIN;
}

void ConnectionEviction::receive(std::span<const std::byte> message) {
  ReplyHeader header{};
  if (message.size() != sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  // The connection may have ended since.
  const std::optional<Peer> peer = connections_.peer_of(header.operation);
  if (!peer) return;
  connections_.begin_disconnect(*peer);
  connections_.present(*peer)->in_order = true;
  {
    // Those of this process arrive, since the sender ends the connection behind the DISCONNECT of this process.
    PeerState& peer_state = states_.of(*peer);
    const std::scoped_lock held(peer_state.mutex);
    peer_state.confirmed = peer_state.handled = peer_state.notifications;
  }
  if (std::ranges::find(disconnecting_, *peer) == disconnecting_.end()) disconnecting_.push_back(*peer);
}

void ConnectionEviction::disconnect_idle() {
  std::erase_if(disconnecting_, [this](Peer peer) { return ends(peer); });
}

void ConnectionEviction::end_open_run(PeerState& peer_state) {
  const std::scoped_lock held(peer_state.mutex);
  if (peer_state.run.open != nullptr) end_run_(peer_state);
}

}  // namespace farside
