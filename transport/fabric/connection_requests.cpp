// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connection_requests.hpp"

#include <optional>
#include <utility>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/hello.hpp"
#include "transport/fabric/socket_address.hpp"

namespace farside {

ConnectionRequests::ConnectionRequests(ConnectionTable& table, ConnectionRoom& room,
                                       const ConnectionEndpoints& endpoints, const FabricAddress& own,
                                       MessageRings& rings, std::size_t openers, std::function<void()> opened)
    : table_(table), room_(room), endpoints_(endpoints), own_(own), rings_(rings) {
  if (openers == 0) return;
  const auto open = [&endpoints](const SocketAddress& address, FabricHandle<fid_ep>& out) {
    return endpoints.open_towards(address, nullptr, out);
  };
  opener_ = std::make_unique<EndpointOpener>(openers, open, std::move(opened));
}

void ConnectionRequests::ask(Peer peer) {
  KnownPeer& known = table_.of(peer);
  if (!known.waits && !known.opening && !known.failed && Clock::now() >= known.not_before) {
    known.waits = true;
    waiting_.push_back(peer);
  }
  connect_waiting();
}

void ConnectionRequests::connect_waiting() {
  while (table_.initiated() + opening_ < kMostInitiated && !waiting_.empty()) {
    const Peer peer = waiting_.front();
    waiting_.pop_front();
    KnownPeer& known = table_.of(peer);
    if (!std::exchange(known.waits, false) || known.current != nullptr) continue;
    if (const ssize_t code = connect(peer); code != 0) not_connected(known, code);
  }
}

// Notes why there is no connection, and when to try again.
void ConnectionRequests::not_connected(KnownPeer& known, ssize_t code) {
  const auto error = static_cast<int>(-code);
  known.last_error = static_cast<std::uint16_t>(error);
  known.failed = !is_transient_connect_error(error);
  room_.note_error(error, table_.size());
  known.back_off(Clock::now());
}

ssize_t ConnectionRequests::connect(Peer peer) {
  KnownPeer& known = table_.of(peer);
  if (opener_ != nullptr) {
    if (const Status asked = opener_->request(peer, known.address.socket); !asked) {
      log(LogLevel::kInfo, "connecting to a peer is tried again: {}", asked.error().text);
      return -FI_EAGAIN;
    }
    known.opening = true;
    ++opening_;
    return 0;
  }
  std::unique_ptr<MessageRing> ring = rings_.take();
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = endpoints_.open_towards(known.address.socket, ring.get(), endpoint); code != 0) return code;
  return request(peer, std::move(endpoint), std::move(ring));
}

// Requests a connection by an endpoint that is open.
ssize_t ConnectionRequests::request(Peer peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring) {
  const FabricAddress& address = table_.of(peer).address;
  const Sockaddr there = to_sockaddr(address.socket);
  Hello hello;
  hello.from = own_.identity;
  hello.secret = address.secret;
  hello.number = random_bits();
  hello.attempt = ++attempts_;
  if (ring != nullptr) hello.ring = ring->address();
  const std::span<const std::byte> data = bytes_of(hello);
  table_.expect_one_more();
  if (const int code = fi_connect(endpoint.get(), &there.any, data.data(), data.size()); code != 0) return code;
  room_.allow(table_.size() + 1);
  table_.set_current(peer, &table_.add(std::move(endpoint), peer, Connection::State::kConnecting, true, hello.number,
                                       std::move(ring)));
  return 0;
}

bool ConnectionRequests::take_opened() {
  bool any = false;
  while (opening_ > 0) {
    std::optional<EndpointOpener::Opened> opened = opener_->take();
    if (!opened) break;
    KnownPeer& known = table_.of(opened->peer);
    known.opening = false;
    --opening_;
    const ssize_t code = opened->code != 0 ? opened->code : request(opened->peer, std::move(opened->endpoint), nullptr);
    if (code != 0) not_connected(known, code);
    any = true;
  }
  return any;
}

bool ConnectionRequests::cancel_opening(Peer peer) {
  if (!std::exchange(table_.of(peer).opening, false)) return false;
  --opening_;
  opener_->cancel(peer);
  return true;
}

void ConnectionRequests::stop(Peer peer) {
  KnownPeer& known = table_.of(peer);
  known.waits = known.failed = false;
  if (cancel_opening(peer)) known.back_off(Clock::now());
}

}  // namespace farside
