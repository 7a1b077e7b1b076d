// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connections.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/handler/message.hpp"

namespace farside {

namespace {

// The two ends of a connection over TCP or an adapter; none if it has no such addresses.
std::optional<TcpEnds> ends_of(fid_ep* endpoint) {
  sockaddr_storage here{}, there{};
  std::size_t here_bytes = sizeof here, there_bytes = sizeof there;
  if (fi_getname(&endpoint->fid, &here, &here_bytes) != 0 || fi_getpeer(endpoint, &there, &there_bytes) != 0) return {};
  const auto mine = socket_address(&here, here_bytes), other = socket_address(&there, there_bytes);
  if (!mine || !other) return {};
  return TcpEnds{*mine, *other};
}

}  // namespace

Connections::Connections(const FabricDomain& domain, Peers& peers, Opening opening)
    : domain_(domain),
      peers_(peers),
      opening_(std::move(opening)),
      room_(domain.by_adapter() ? std::optional(domain.info()->domain_attr->ep_cnt) : std::nullopt) {}

Connections::~Connections() {
  // Endpoints are closed before the objects that they are bound to.
  listener_.reset();
  for (const auto& [_, connection] : connections_) {
    if (connection->carries()) fi_shutdown(connection->endpoint.get(), 0);
  }
  connections_.clear();
}

ssize_t Connections::reach(PeerState& peer, fid_ep*& endpoint, What what) {
  if (const Connection* const present = peer.current; present != nullptr) {
    if (present->state != State::kConnected && !(what == What::kAnswer && present->carries())) return -FI_EAGAIN;
    endpoint = present->endpoint.get();
    return 0;
  }
  // The peer has connected to this process, and this process does not know its address: the peer must connect again.
  if (peer.address.socket.family == 0) return -FI_ENOTCONN;
  if (!peer.waits && !peer.failed && find_opened(peer) == nullptr && Clock::now() >= peer.not_before) {
    peer.waits = true;
    waiting_.push_back(&peer);
  }
  connect_waiting();
  if (std::exchange(peer.failed, false)) return -peer.last_error;
  return -FI_EAGAIN;
}

PeerState* Connections::peer_of(std::uint64_t number) const {
  for (const auto& [_, connection] : connections_) {
    if (connection->number == number && is_present(*connection)) return &connection->peer;
  }
  return nullptr;
}

// ---- endpoints ----

Status Connections::listen(std::size_t wanted) {
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_FD;
  const auto open_events = [&](auto** out) { return fi_eq_open(domain_.fabric(), &eq_attr, out, nullptr); };
  if (Status s = open_step("fi_eq_open", events_, open_events); !s) return s;
  int code = fi_control(&events_->fid, FI_GETWAIT, &events_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the event queue's file descriptor", code);

  fi_rx_attr rx_attr = *domain_.info()->rx_attr;
  rx_attr.size = std::max(rx_attr.size, wanted);
  const auto open_receives = [&](auto** out) { return fi_srx_context(domain_.domain(), &rx_attr, out, nullptr); };
  Status opened = open_step("fi_srx_context", receives_, open_receives);
  if (!opened && rx_attr.size > domain_.info()->rx_attr->size) {
    rx_attr.size = domain_.info()->rx_attr->size;
    opened = open_step("fi_srx_context", receives_, open_receives);
  }
  if (!opened) return opened;
  most_receives_ = rx_attr.size;

  const auto open_listener = [&](auto** out) { return fi_passive_ep(domain_.fabric(), domain_.info(), out, nullptr); };
  if (Status s = open_step("fi_passive_ep", listener_, open_listener); !s) return s;
  code = fi_pep_bind(listener_.get(), &events_->fid, 0);
  if (code == 0) code = fi_listen(listener_.get());
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "listening for connections", code);
  sockaddr_storage name{};
  std::size_t bytes = sizeof name;
  code = fi_getname(&listener_->fid, &name, &bytes);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "fi_getname", code);
  const std::optional<SocketAddress> socket = socket_address(&name, bytes);
  if (!socket) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("device {} has no IPv4 or IPv6 address, and peers cannot connect to its address of "
                             "family {}",
                             domain_.device(), name.ss_family)};
  }
  address_ = {*socket, random_bits(), random_bits()};
  return {};
}

ssize_t Connections::open_accepting(fi_info* info, MessageRing* ring, FabricHandle<fid_ep>& out) const {
  info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  fid_ep* endpoint = nullptr;
  int code = fi_endpoint(domain_.domain(), info, &endpoint, ring);
  if (code != 0) return code;
  out.reset(endpoint);
  code = fi_ep_bind(endpoint, &events_->fid, 0);
  // Over sockets an operation has a completion only if it requests one (message_ring.hpp). There are two calls, since
  // in one call the flag would apply to received messages as well.
  const std::uint64_t selective = domain_.by_sockets() ? FI_SELECTIVE_COMPLETION : 0;
  if (code == 0) code = fi_ep_bind(endpoint, &domain_.queue()->fid, FI_TRANSMIT | selective);
  if (code == 0) code = fi_ep_bind(endpoint, &domain_.queue()->fid, FI_RECV);
  if (code == 0) code = fi_ep_bind(endpoint, &receives_->fid, 0);
  if (code == 0) code = fi_enable(endpoint);
  return code;
}

ssize_t Connections::open_towards(const SocketAddress& address, MessageRing* ring, FabricHandle<fid_ep>& out) const {
  if (opening_.resolve) {
    if (const int code = opening_.resolve(address); code != 0) return code;
  }
  const Sockaddr there = to_sockaddr(address);
  const InfoHandle info(fi_dupinfo(domain_.info()));
  if (info == nullptr) return -FI_ENOMEM;
  info->dest_addrlen = there.bytes;
  info->dest_addr = std::malloc(there.bytes);  // fi_freeinfo frees it: NOLINT(cppcoreguidelines-no-malloc)
  if (info->dest_addr == nullptr) return -FI_ENOMEM;
  std::memcpy(info->dest_addr, &there.any, there.bytes);
  return open_accepting(info.get(), ring, out);
}

// ---- states ----

// The connection is the present one of its peer from now on, unless it is the accepting end of a connection of this
// process to itself.
void Connections::add(FabricHandle<fid_ep> endpoint, PeerState& peer, State state, std::uint64_t number,
                      std::unique_ptr<MessageRing> ring) {
  std::unique_ptr<Connection>& connection = connections_[&endpoint->fid];
  const bool initiated = state == State::kConnecting, counted = !is_self(peer);
  connection.reset(new Connection{std::move(ring), std::move(endpoint), peer, number, state, initiated, counted});
  if (connection->ring != nullptr) with_ring_.push_back(connection.get());
  not_closing_ += counted;
  ++in_progress_;
  initiated_ += initiated;
  if (initiated || counted) peer.current = connection.get();
}

void Connections::become(Connection& connection, State state) {
  if (connection.state == State::kConnected && is_present(connection)) connection.peer.withdraw_endpoint();
  in_progress_ -= connection.in_progress();
  initiated_ -= connection.state == State::kConnecting;
  connection.state = state;
  connection.since = Clock::now();
}

void Connections::begin_disconnect(Connection& connection) {
  connection.to_disconnect = true;
  not_closing_ -= std::exchange(connection.counted, false);
  if (connection.state == State::kConnected) become(connection, State::kDisconnecting);
}

// If it is the present connection to its peer, there is none any more, and the next attempt to connect is delayed.
void Connections::end(Connection& connection) {
  if (connection.state == State::kEnded) return;
  become(connection, State::kEnded);
  if (is_present(connection)) {
    connection.peer.current = nullptr;
    connection.peer.back_off(connection.since);
  }
  not_closing_ -= std::exchange(connection.counted, false);
  if (connection.ring != nullptr) std::erase(with_ring_, &connection);
}

void Connections::close_ended() {
  std::erase_if(connections_, [](const auto& each) {
    return each.second->state == State::kEnded && !each.second->peer.any_in_flight();
  });
}

// ---- requests of this process ----

void Connections::connect_waiting() {
  while (!waiting_.empty() && initiated_ + opening() < kMostInitiated) {
    drop_ended_threads();
    if (opening_.threads > 0 && opened_.size() >= opening_.threads) return;
    PeerState& peer = *waiting_.front();
    waiting_.pop_front();
    if (!std::exchange(peer.waits, false) || peer.current != nullptr) continue;
    if (const ssize_t code = connect(peer); code != 0) not_connected(peer, code);
  }
}

ssize_t Connections::connect(PeerState& peer) {
  const SocketAddress address = peer.address.socket;  // which other threads may set again
  if (opening_.threads > 0) {
    Opened& begun = opened_.emplace_back(peer);
    const Status started = start_own_thread(begun.thread, "farside-opener", [this, &begun, address] {
      begun.code = open_towards(address, nullptr, begun.endpoint);
      if (begun.code != 0) begun.endpoint.reset();
      begun.done.store(true, std::memory_order_release);
      opening_.opened();
    });
    if (started) return 0;
    opened_.pop_back();
    log(LogLevel::kInfo, "connecting to a peer is tried again: {}", started.error().text);
    return -FI_EAGAIN;
  }
  std::unique_ptr<MessageRing> ring = make_ring();
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = open_towards(address, ring.get(), endpoint); code != 0) return code;
  return request(peer, std::move(endpoint), std::move(ring));
}

Hello Connections::hello_of(std::uint64_t connection, const MessageRing* ring) const {
  Hello hello;
  hello.from = address_.identity;
  hello.number = connection;
  hello.attempt = attempts_;
  if (ring != nullptr) hello.ring = ring->address();
  return hello;
}

// Requests a connection by an endpoint that is open.
ssize_t Connections::request(PeerState& peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring) {
  const Sockaddr there = to_sockaddr(peer.address.socket);
  ++attempts_;
  Hello hello = hello_of(random_bits(), ring.get());
  hello.secret = peer.address.secret;
  const std::span<const std::byte> data = bytes_of(hello);
  if (before_more) before_more(not_closing_ + 1);
  if (const int code = fi_connect(endpoint.get(), &there.any, data.data(), data.size()); code != 0) return code;
  room_.allow(connections_.size() + 1);
  add(std::move(endpoint), peer, State::kConnecting, hello.number, std::move(ring));
  return 0;
}

// Notes why there is no connection, and when to try again.
void Connections::not_connected(PeerState& peer, ssize_t code) {
  const auto error = static_cast<int>(-code);
  peer.last_error = static_cast<std::uint16_t>(error);
  peer.failed = !is_transient_connect_error(error);
  room_.note_error(error);
  peer.back_off(Clock::now());
}

Connections::Opened* Connections::find_opened(const PeerState& peer) {
  const auto found = std::ranges::find_if(opened_, [&](const Opened& o) { return o.wanted && &o.peer == &peer; });
  return found != opened_.end() ? &*found : nullptr;
}

// Its endpoint is closed when it is open. Returns whether there was one.
bool Connections::cancel_opening(const PeerState& peer) {
  Opened* const opened = find_opened(peer);
  if (opened == nullptr) return false;
  opened->wanted = false;
  drop_ended_threads();
  return true;
}

void Connections::drop_ended_threads() {
  opened_.remove_if([](const Opened& each) { return !each.wanted && each.done.load(std::memory_order_acquire); });
}

// Takes the endpoints that threads have opened. Returns whether there were any.
bool Connections::take_opened() {
  bool any = false;
  for (Opened& each : opened_) {
    if (!each.wanted || !each.done.load(std::memory_order_acquire)) continue;
    each.wanted = false;
    const ssize_t code = each.code != 0 ? each.code : request(each.peer, std::move(each.endpoint), nullptr);
    if (code != 0) not_connected(each.peer, code);
    any = true;
  }
  drop_ended_threads();
  return any;
}

// ---- events ----

// Ends the connection or request that the peer's request replaces. Returns whether the peer's request is to be
// accepted.
bool Connections::resolve_crossing_request(const Hello& hello, PeerState& peer) {
  if (is_self(peer)) return true;
  cancel_opening(peer);  // no request of this process is in flight
  // This is a loop because `ended` takes completions, and the answers to these may have begun another connection.
  while (Connection* mine = peer.current) {
    if (mine->state == State::kConnecting) {
      if (address_.identity < hello.from) return false;
      end(*mine);  // it is freed when its refusal arrives
    } else {
      if (hello.attempt <= peer.attempt) return false;
      // The peer may have closed this connection behind its DISCONNECT, which is still on its way.
      if (mine->state == State::kDisconnecting && !mine->in_order &&
          Clock::now() - mine->since < Timing::kForDisconnect)
        return false;
      begin_disconnect(*mine);
      shut_down(*mine);
      ended(*mine, "it has connected again");
    }
  }
  return true;
}

void Connections::take_request(fi_info& info, const std::optional<Hello>& hello) {
  if (!hello || hello->secret != address_.secret) {
    log(LogLevel::kWarn, "a connection from outside of the job was refused");
    return reject(info);
  }
  PeerState& peer = peers_.know(hello->from);
  if (!resolve_crossing_request(*hello, peer)) return reject(info);
  peer.attempt = std::max(peer.attempt, hello->attempt);
  std::unique_ptr<MessageRing> ring = make_ring();
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = open_accepting(&info, ring.get(), endpoint); code != 0) {
    room_.note_error(static_cast<int>(-code));
    log(LogLevel::kWarn, "a peer's connection was refused: {}",
        fabric_error(ErrorKind::kPeer, "opening an endpoint", code).text);
    endpoint.reset();  // before the request that it refers to
    return reject(info);
  }
  // The answer proves the identity of this process: only processes that have received its address in the exchange know
  // it.
  if (ring != nullptr) ring->connect(hello->ring);
  const Hello answer = hello_of(hello->number, ring.get());
  if (before_more) before_more(not_closing_ + 1);
  const std::span<const std::byte> data = bytes_of(answer);
  if (const int code = fi_accept(endpoint.get(), data.data(), data.size()); code != 0) {
    log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "accepting a connection", code).text);
    return;
  }
  room_.allow(connections_.size() + 1);
  add(std::move(endpoint), peer, State::kAccepting, hello->number, std::move(ring));
}

void Connections::established(Connection& connection, const std::optional<Hello>& hello) {
  if (connection.state == State::kEnded) return close(connection);
  PeerState& peer = connection.peer;
  if (connection.initiated && (!hello || hello->from != peer.address.identity)) {
    return ended(connection, "another process answers at its address");
  }
  if (hello) peer.attempt = std::max(peer.attempt, hello->attempt);
  if (hello && connection.initiated && connection.ring != nullptr) connection.ring->connect(hello->ring);
  become(connection, connection.to_disconnect ? State::kDisconnecting : State::kConnected);
  peer.refused = peer.last_error = 0;
}

bool Connections::host_accepts(const PeerState& peer) const {
  if (domain_.by_adapter() || peer.current == nullptr) return false;
  const std::optional<TcpEnds> ends = ends_of(peer.current->endpoint.get());
  return ends && find_tcp_sockets({&*ends, 1}).front() >= 0;
}

// libfabric does not say which descriptor an endpoint has. One search finds those of all connections that have none.
std::optional<TcpState> Connections::tcp_state(const PeerState& peer) {
  if (!peer.connected()) return {};
  const Connection* const connection = peer.current;
  const std::optional<TcpEnds> ends = ends_of(connection->endpoint.get());
  if (!ends) return {};
  if (!connection->sought) {
    std::vector<Connection*> sought;
    std::vector<TcpEnds> sockets;
    for_each_present([&](Connection& each) {
      if (!each.carries() || std::exchange(each.sought, true)) return;
      sought.push_back(&each);
      sockets.push_back(ends_of(each.endpoint.get()).value_or(TcpEnds()));
    });
    const std::vector<int> found = find_tcp_sockets(sockets);
    for (std::size_t i = 0; i < found.size(); ++i) sought[i]->socket = found[i];
  }
  return farside::tcp_state(connection->socket, *ends);
}

// The other side gets an event and ends the connection as well.
bool Connections::disconnect(PeerState& peer) {
  Connection* const connection = peer.current;
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->to_disconnect) return true;
  if (connection->state != State::kDisconnecting) return false;
  end(*connection);
  fi_shutdown(connection->endpoint.get(), 0);
  close(*connection);
  return true;
}

// Called when the provider reports that the connection cannot be used any more. The provider then fails the operations
// on the connection. Over an adapter it does so only when this side has shut the connection down as well: libfabric
// 1.17 does not change the queue pair, which goes on retrying.
void Connections::ended(Connection& connection, const std::string& why) {
  if (!connection.carries()) {
    end(connection);
    return close(connection);
  }
  if (before_end) before_end();
  if (connection.state == State::kEnded) return;  // an error among the completions has ended it: failed()
  end(connection);
  if (domain_.by_adapter()) fi_shutdown(connection.endpoint.get(), 0);
  if (lost) lost(connection.peer, why, connection.in_order);
}

// A queue pair that has reported an error executes nothing more, and libfabric reports no event for its connection.
void Connections::failed(PeerState& peer, const fid_ep* endpoint, const std::string& why) {
  if (domain_.by_adapter() && peer.connected() && peer.current->endpoint.get() == endpoint) ended(*peer.current, why);
}

void Connections::stop(PeerState& peer) {
  peer.waits = peer.failed = false;
  if (cancel_opening(peer)) peer.back_off(Clock::now());
  Connection* const connection = peer.current;
  if (connection == nullptr) return;
  const bool in_progress = connection->in_progress();
  end(*connection);
  in_progress ? close(*connection) : shut_down(*connection);
}

// Over TCP this first ends the socket (connections.md), and polls the provider until it has received what had arrived.
// When it returns, the provider touches no buffer of an operation on the connection; all of them complete with errors.
void Connections::shut_down(Connection& connection) {
  const std::optional<TcpEnds> ends = domain_.by_adapter() ? std::nullopt : ends_of(connection.endpoint.get());
  if (ends) {
    // Limited in time, since messages for which no receive is posted are not taken here.
    constexpr int kPollsForTheEnd = 4;
    const int socket = end_tcp_connection(*ends);
    int at_end = 0;
    for (const auto end = Clock::now() + Timing::kTcpEnd;
         socket >= 0 && at_end < kPollsForTheEnd && Clock::now() < end;) {
      char next = 0;
      at_end = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) > 0 ? 0 : at_end + 1;
      fi_cq_read(domain_.queue(), nullptr, 0);  // polls, and takes nothing
    }
  }
  fi_shutdown(connection.endpoint.get(), 0);
}

void Connections::take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes) {
  const std::optional<Hello> hello =
      read_hello(std::as_bytes(std::span(entry.data, bytes - offsetof(fi_eq_cm_entry, data))));
  if (event == FI_CONNREQ) {
    const InfoHandle info(entry.info);
    return take_request(*info, hello);
  }
  const auto found = connections_.find(entry.fid);
  if (found == connections_.end()) return;
  if (event == FI_CONNECTED) established(*found->second, hello);
  if (event == FI_SHUTDOWN) ended(*found->second, "it has closed the connection");
}

void Connections::take_error(const fi_eq_err_entry& entry) {
  const auto found = connections_.find(entry.fid);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (!connection.carries()) connection.peer.last_error = static_cast<std::uint16_t>(entry.err);
  ended(connection, fi_strerror(entry.err));
}

bool Connections::progress() {
  constexpr std::size_t kMostData = 256;
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + kMostData> buffer;
  bool any = false;
  while (true) {
    std::uint32_t event = 0;
    const ssize_t bytes = fi_eq_read(events_.get(), &event, buffer.data(), buffer.size(), 0);
    if (fi_eq_err_entry error{}; bytes == -FI_EAVAIL && fi_eq_readerr(events_.get(), &error, 0) >= 0) {
      take_error(error);
    } else if (bytes >= static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      take_event(event, *reinterpret_cast<const fi_eq_cm_entry*>(buffer.data()), static_cast<std::size_t>(bytes));
    } else {
      break;
    }
    any = true;
  }
  any = take_opened() || any;
  connect_waiting();
  return any;
}

namespace {

constexpr std::size_t kPartInShortage = 16;  // of the connections one in so many is closed

std::unique_ptr<Reply> disconnect_of(const PeerState& peer) {
  return Replies::take(peer.number, MessageKind::kDisconnect, peer.connection_number());
}

// The time without use after which the connection may be evicted.
Clock::duration idle_limit(const PeerState& peer) {
  return std::max<Clock::duration>(peer.idle_limit, Timing::kShortestIdle);
}

}  // namespace

std::size_t ConnectionEviction::share_node(std::size_t processes) {
  if (processes <= node_processes_) return node_processes_;
  node_processes_ = processes;
  const std::size_t most = connections_.room().most_connections(processes);
  if (most == 0 || most >= most_) return processes;
  most_ = most;
  log(LogLevel::kInfo, "FARSIDE_CONNECTIONS={}, but {}, with {} processes on the node, admit {} connections", asked_,
      connections_.room().what_limits(), processes, most);
  return processes;
}

void ConnectionEviction::make_room() {
  const Clock::time_point now = Clock::now();
  if (now < make_room_again_) return;
  make_room_again_ = now + Timing::kRoomAgain;
  std::vector<std::pair<Clock::time_point, PeerState*>> candidates;  // by their last use
  connections_.for_each_present([&](const Connection& connection) {
    PeerState& peer = connection.peer;
    // One to this process itself is not counted.
    if (connection.state != Connection::State::kConnected || !connection.counted) return;
    if (now - connection.since < idle_limit(peer)) return;
    const Clock::time_point last_use = peer.find_last_use(now);
    if (now - last_use >= Timing::kShortestIdle && !peer.any_in_flight()) candidates.emplace_back(last_use, &peer);
  });
  const std::size_t count = connections_.count();
  std::size_t too_many = most_ > 0 && count > most_ ? count - most_ : 0;
  const bool shortage = std::exchange(connections_.room().shortage, false);
  if (shortage) too_many = std::max(too_many, count / kPartInShortage + 1);
  std::ranges::sort(candidates);
  candidates.resize(std::min(too_many, candidates.size()));
  for (const auto& [_, peer] : candidates) ask_to_disconnect(*peer, shortage);
}

void ConnectionEviction::ask_to_disconnect(PeerState& peer, bool shortage) {
  {
    // Another thread may have issued meanwhile. Without an endpoint it needs Fabric's mutex first.
    const std::scoped_lock held(peer.mutex);
    if (peer.in_flight > 0) return;
    peer.endpoint = nullptr;
  }
  const std::size_t count = connections_.count();
  if (replies_.send(disconnect_of(peer)) != 0) return;
  log(LogLevel::kInfo, "{} connections, {}: one that was not used is to be closed", count,
      shortage ? "and no descriptor or memory for another"
               : fmt::format("{}={}", most_ == asked_ ? "FARSIDE_CONNECTIONS" : "the process's share", most_));
  Connection& connection = *peer.current;
  const bool soon = Clock::now() - connection.since < Timing::kReopenedSoon * idle_limit(peer);
  peer.idle_limit = soon ? std::min<Clock::duration>(2 * idle_limit(peer), Timing::kLongestIdle)
                         : Clock::duration(Timing::kShortestIdle);
  connections_.begin_disconnect(connection);
}

void ConnectionEviction::leave_all() {
  connections_.for_each_present([this](const Connection& connection) {
    if (connection.carries() && !connection.disconnect_sent) replies_.keep(disconnect_of(connection.peer));
  });
}

// When nothing of this process is in flight on the connection, ends it if it has sent DISCONNECT before, else sends it
// now. Returns whether it has done so.
bool ConnectionEviction::ends(PeerState& peer) {
  const Connection* const connection = peer.current;
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->in_order) return true;
  if (peer.any_issued()) return false;
  if (connection->disconnect_sent) return connection->disconnect_left && connections_.disconnect(peer);
  return replies_.send(disconnect_of(peer)) != -FI_EAGAIN;
}

void ConnectionEviction::receive(std::span<const std::byte> message) {
  ReplyHeader header{};
  if (message.size() != sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  // The connection may have ended since.
  PeerState* const peer = connections_.peer_of(header.operation);
  if (peer == nullptr) return;
  connections_.begin_disconnect(*peer->current);
  peer->current->in_order = true;
  {
    // Those of this process arrive, since the sender ends the connection behind the DISCONNECT of this process.
    const std::scoped_lock held(peer->mutex);
    peer->confirmed = peer->notifications;
  }
  if (std::ranges::find(disconnecting_, peer) == disconnecting_.end()) disconnecting_.push_back(peer);
}

void ConnectionEviction::disconnect_idle() {
  std::erase_if(disconnecting_, [this](PeerState* peer) { return ends(*peer); });
}

}  // namespace farside
