// SPDX-License-Identifier: BSD-3-Clause
// Connection eviction (FARSIDE_CONNECTIONS, or the process's share of what the node has for connections, if that is
// less): beyond this limit the least recently used connections are closed, and reopened on demand. Eviction must lose
// nothing, and a process does not see the operations that its peer has under way. To evict an idle connection, a
// process therefore stops issuing on it and sends DISCONNECT. The peer stops issuing as well, and ends the connection
// when nothing of its own is under way: its requests have been answered by then. If both send DISCONNECT, both end it.
//
// The same happens, whatever the limit is, when a connection cannot be made for lack of descriptors or memory.
//
// The limit is soft. A connection that is in use or was just made stays, since two ranks that need each other would
// otherwise connect and disconnect for ever. RDMA of the peer is not visible here, so a connection that soon comes
// back is evicted ever later.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside {
namespace {

constexpr std::chrono::milliseconds kUnused{100};        // the shortest time
constexpr std::chrono::seconds kUnusedLongest{100};
constexpr int kComesBackSoon = 16;                       // in multiples of that time
constexpr std::size_t kPartInShortage = 16;              // of the connections one in so many is closed

}  // namespace

// Called with the mutex held, repeatedly while there are too many connections.
void Fabric::make_room() {
  const Clock::time_point now = Clock::now();
  if (now < make_room_again_) return;
  make_room_again_ = now + kRoomAgain;
  std::vector<PeerState*> unused;
  const auto patience = [](const PeerState& peer_state) {
    return std::max<Clock::duration>(peer_state.patience, kUnused);
  };
  connections_->for_each_peer([&](Peer peer) {
    PeerState& peer_state = peer_states_.of(peer);
    if (peer_state.under_way == 0 && connections_->age(peer) >= patience(peer_state) &&
        now - peer_state.last_issued >= kUnused) {
      unused.push_back(&peer_state);
    }
  });
  const std::size_t count = connections_->count();
  std::size_t too_many = most_connections_ > 0 && count > most_connections_ ? count - most_connections_ : 0;
  const bool shortage = connections_->shortage();
  if (shortage) too_many = std::max(too_many, count / kPartInShortage + 1);
  connections_->clear_shortage();
  too_many = std::min(too_many, unused.size());
  const auto last_ones = unused.begin() + static_cast<std::ptrdiff_t>(too_many);
  std::partial_sort(unused.begin(), last_ones, unused.end(),
                    [](const PeerState* a, const PeerState* b) { return a->last_issued < b->last_issued; });
  for (auto each = unused.begin(); each != last_ones; ++each) {
    PeerState& peer_state = **each;
    const Peer peer = peer_state.peer;
    std::unique_ptr<Reply> request = take_reply_buffer();
    request->peer = peer;
    request->header = {};
    request->header.kind = MessageKind::kDisconnect;
    request->header.operation = connections_->number(peer);
    request->fetched.clear();
    request->probe = true;  // no warning if it does not arrive
    if (send(*request) != 0) {
      spare_.push_back(std::move(request));
      continue;
    }
    request.release();  // until its completion: NOLINT(bugprone-unused-return-value)
    ++answers_under_way_;
    if (shortage) {
      log(LogLevel::kInfo, "{} connections, and no descriptor or memory for another: one that was not used is to be "
                           "closed", count);
    } else {
      log(LogLevel::kInfo, "{} connections, {}={}: one that was not used is to be closed", count,
          most_connections_ == asked_connections_ ? "FARSIDE_CONNECTIONS" : "the process's share", most_connections_);
    }
    const bool soon = connections_->age(peer) < kComesBackSoon * patience(peer_state);
    peer_state.patience = soon ? std::min<Clock::duration>(2 * patience(peer_state), kUnusedLongest) : kUnused;
    connections_->begin_disconnect(peer);
  }
}

// The message comes from the network: every field is checked.
void Fabric::receive_disconnect(std::span<const std::byte> message) {
  ReplyHeader header{};
  if (message.size() != sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  // The connection may have ended since.
  const std::optional<Peer> peer = connections_->peer_of(header.operation);
  if (!peer) return;
  connections_->begin_disconnect(*peer);
  if (std::ranges::find(disconnecting_, *peer) == disconnecting_.end()) disconnecting_.push_back(*peer);
}

// Called with the mutex held.
void Fabric::disconnect_idle() {
  std::erase_if(disconnecting_,
                [&](Peer peer) { return peer_states_.of(peer).issued.empty() && connections_->disconnect(peer); });
}

}  // namespace farside
