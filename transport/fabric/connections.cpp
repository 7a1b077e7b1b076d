// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connections.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/socket.h>
#include <utility>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/timing.hpp"
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

Connections::Connections(const FabricDomain& domain, Lost lost, Opening opening)
    : domain_(domain),
      lost_(std::move(lost)),
      endpoints_(domain, std::move(opening.resolve)),
      room_(domain.by_adapter() ? std::optional(domain.info()->domain_attr->ep_cnt) : std::nullopt),
      opens_by_threads_(opening.threads > 0),
      opener_(
          opening.threads,
          [this](const SocketAddress& to, FabricHandle<fid_ep>& out) {
            return endpoints_.open_towards(to, nullptr, out);
          },
          std::move(opening.opened)) {}

Result<std::unique_ptr<Connections>> Connections::open(const FabricDomain& domain, std::size_t receives, Lost lost,
                                                       Withdraw withdraw, Opening opening) {
  std::unique_ptr<Connections> opened(new Connections(domain, std::move(lost), std::move(opening)));
  if (Status status = opened->endpoints_.open(receives); !status) return status.error();
  opened->address_ = {opened->endpoints_.address(), random_bits(), random_bits()};
  opened->table_.own_identity = opened->address_.identity;
  opened->table_.withdraw = std::move(withdraw);
  return opened;
}

Connections::~Connections() {
  // Endpoints are closed before the objects that they are bound to.
  endpoints_.stop_listening();
  table_.for_each([](const Connection& connection) {
    if (connection.carries()) fi_shutdown(connection.endpoint.get(), 0);
  });
  table_.clear();
}

ssize_t Connections::reach(Peer peer, fid_ep*& endpoint, What what) {
  KnownPeer& known = table_.of(peer);
  const auto carries = [what](const Connection& connection) {
    return connection.state == State::kConnected || (what == What::kAnswer && connection.carries());
  };
  if (known.current != nullptr && carries(*known.current)) [[likely]] {
    endpoint = known.current->endpoint.get();
    return 0;
  }
  if (known.current != nullptr) return -FI_EAGAIN;
  // The peer has connected to this process, and this process does not know its address: the peer must connect again.
  if (known.address.socket.family == 0) return -FI_ENOTCONN;
  if (!known.waits && !known.failed && !opener_.opens(peer) && Clock::now() >= known.not_before) {
    known.waits = true;
    waiting_.push_back(peer);
  }
  connect_waiting();
  if (std::exchange(known.failed, false)) return -known.last_error;
  return -FI_EAGAIN;
}

// ---- requests of this process ----

void Connections::connect_waiting() {
  while (!waiting_.empty() && table_.initiated() + opener_.count() < kMostInitiated) {
    if (opens_by_threads_ && !opener_.any_free()) return;
    const Peer peer = waiting_.front();
    waiting_.pop_front();
    KnownPeer& known = table_.of(peer);
    if (!std::exchange(known.waits, false) || known.current != nullptr) continue;
    if (const ssize_t code = connect(peer); code != 0) not_connected(peer, code);
  }
}

ssize_t Connections::connect(Peer peer) {
  const SocketAddress& address = table_.of(peer).address.socket;
  if (opens_by_threads_) {
    const Status begun = opener_.begin(peer, address);
    if (!begun) log(LogLevel::kInfo, "connecting to a peer is tried again: {}", begun.error().text);
    return begun ? 0 : -FI_EAGAIN;
  }
  std::unique_ptr<MessageRing> ring = make_ring();
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = endpoints_.open_towards(address, ring.get(), endpoint); code != 0) return code;
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
ssize_t Connections::request(Peer peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring) {
  const FabricAddress& address = table_.of(peer).address;
  const Sockaddr there = to_sockaddr(address.socket);
  ++attempts_;
  Hello hello = hello_of(random_bits(), ring.get());
  hello.secret = address.secret;
  const std::span<const std::byte> data = bytes_of(hello);
  if (before_more) before_more(table_.not_closing() + 1);
  if (const int code = fi_connect(endpoint.get(), &there.any, data.data(), data.size()); code != 0) return code;
  room_.allow(table_.size() + 1);
  table_.add(std::move(endpoint), peer, State::kConnecting, hello.number, std::move(ring));
  return 0;
}

// Notes why there is no connection, and when to try again.
void Connections::not_connected(Peer peer, ssize_t code) {
  KnownPeer& known = table_.of(peer);
  const auto error = static_cast<int>(-code);
  known.last_error = static_cast<std::uint16_t>(error);
  known.failed = !is_transient_connect_error(error);
  room_.note_error(error);
  known.back_off(Clock::now());
}

// Takes the endpoints that threads have opened. Returns whether there were any.
bool Connections::take_opened() {
  bool any = false;
  while (std::optional<EndpointOpener::Opened> opened = opener_.take()) {
    const ssize_t code = opened->code != 0 ? opened->code : request(opened->peer, std::move(opened->endpoint), nullptr);
    if (code != 0) not_connected(opened->peer, code);
    any = true;
  }
  return any;
}

// ---- events ----

// Ends the connection or request that the peer's request replaces. Returns whether the peer's request is to be
// accepted.
bool Connections::resolve_crossing_request(const Hello& hello, Peer peer) {
  if (table_.is_self(peer)) return true;
  opener_.cancel(peer);  // no request of this process is in flight
  // This is a loop because `ended` takes completions, and the answers to these may have begun another connection.
  while (Connection* mine = table_.of(peer).current) {
    if (mine->state == State::kConnecting) {
      if (address_.identity < hello.from) return false;
      table_.end(*mine);  // it is freed when its refusal arrives
    } else {
      if (hello.attempt <= table_.of(peer).attempt) return false;
      // The peer may have closed this connection behind its DISCONNECT, which is still on its way.
      if (mine->state == State::kDisconnecting && !mine->in_order &&
          Clock::now() - mine->since < Timing::kForDisconnect)
        return false;
      table_.begin_disconnect(*mine);
      shut_down(*mine);
      ended(*mine, "it has connected again");
    }
  }
  return true;
}

void Connections::take_request(fi_info& info, const std::optional<Hello>& hello) {
  if (!hello || hello->secret != address_.secret) {
    log(LogLevel::kWarn, "a connection from outside of the job was refused");
    return endpoints_.reject(info);
  }
  const Peer peer = table_.find(hello->from);
  if (!resolve_crossing_request(*hello, peer)) return endpoints_.reject(info);
  std::uint64_t& attempt = table_.of(peer).attempt;
  attempt = std::max(attempt, hello->attempt);
  std::unique_ptr<MessageRing> ring = make_ring();
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = endpoints_.open_accepting(&info, ring.get(), endpoint); code != 0) {
    room_.note_error(static_cast<int>(-code));
    log(LogLevel::kWarn, "a peer's connection was refused: {}",
        fabric_error(ErrorKind::kPeer, "opening an endpoint", code).text);
    endpoint.reset();  // before the request that it refers to
    return endpoints_.reject(info);
  }
  // The answer proves the identity of this process: only processes that have received its address in the exchange know
  // it.
  if (ring != nullptr) ring->connect(hello->ring);
  const Hello answer = hello_of(hello->number, ring.get());
  if (before_more) before_more(table_.not_closing() + 1);
  const std::span<const std::byte> data = bytes_of(answer);
  if (const int code = fi_accept(endpoint.get(), data.data(), data.size()); code != 0) {
    log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "accepting a connection", code).text);
    return;
  }
  room_.allow(table_.size() + 1);
  table_.add(std::move(endpoint), peer, State::kAccepting, hello->number, std::move(ring));
}

void Connections::established(Connection& connection, const std::optional<Hello>& hello) {
  if (connection.state == State::kEnded) return table_.close(connection);
  KnownPeer& known = table_.of(connection.peer);
  if (connection.initiated && (!hello || hello->from != known.address.identity)) {
    return ended(connection, "another process answers at its address");
  }
  if (hello) known.attempt = std::max(known.attempt, hello->attempt);
  if (hello && connection.initiated && connection.ring != nullptr) connection.ring->connect(hello->ring);
  table_.established(connection);
}

// libfabric does not say which descriptor an endpoint has. One search finds those of all connections that have none.
std::optional<TcpState> Connections::tcp_state(Peer peer) {
  const Connection* const connection = present(peer);
  if (connection == nullptr || !connection->carries()) return {};
  const std::optional<TcpEnds> ends = ends_of(connection->endpoint.get());
  if (!ends) return {};
  if (!connection->sought) {
    std::vector<Connection*> sought;
    std::vector<TcpEnds> sockets;
    table_.for_each_present([&](Connection& each) {
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
bool Connections::disconnect(Peer peer) {
  Connection* const connection = table_.of(peer).current;
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->to_disconnect) return true;
  if (connection->state != State::kDisconnecting) return false;
  table_.end(*connection);
  fi_shutdown(connection->endpoint.get(), 0);
  table_.close(*connection);
  return true;
}

// Called when the provider reports that the connection cannot be used any more. The provider then fails the operations
// on the connection. Over an adapter it does so only when this side has shut the connection down as well: libfabric
// 1.17 does not change the queue pair, which goes on retrying.
void Connections::ended(Connection& connection, const std::string& why) {
  if (!connection.carries()) {
    table_.end(connection);
    return table_.close(connection);
  }
  if (before_end) before_end();
  if (connection.state == State::kEnded) return;  // an error among the completions has ended it: failed()
  table_.end(connection);
  if (domain_.by_adapter()) fi_shutdown(connection.endpoint.get(), 0);
  lost_(connection.peer, why, connection.in_order);
}

// A queue pair that has reported an error executes nothing more, and libfabric reports no event for its connection.
void Connections::failed(Peer peer, const fid_ep* endpoint, const std::string& why) {
  Connection* const connection = table_.of(peer).current;
  if (!domain_.by_adapter() || connection == nullptr || connection->endpoint.get() != endpoint) return;
  if (connection->carries()) ended(*connection, why);
}

void Connections::stop(Peer peer) {
  KnownPeer& known = table_.of(peer);
  known.waits = known.failed = false;
  if (opener_.cancel(peer)) known.back_off(Clock::now());
  Connection* const connection = known.current;
  if (connection == nullptr) return;
  const bool in_progress = connection->in_progress();
  table_.end(*connection);
  if (in_progress) {
    table_.close(*connection);
  } else {
    shut_down(*connection);
  }
}

// fi_shutdown(3) alone would suffice, but libfabric before 1.18 frees a read twice if its data are just arriving over
// TCP, and loses operations from then on. libfabric handles the end of a socket correctly. So this function first ends
// the socket, and polls the provider until it has received the data that had arrived, and the end of the stream.
//
// When it returns, the provider touches no buffer of an operation on the connection any more; all of them complete with
// errors.
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
  Connection* const connection = table_.find(entry.fid);
  if (connection == nullptr) return;
  if (event == FI_CONNECTED) established(*connection, hello);
  if (event == FI_SHUTDOWN) ended(*connection, "it has closed the connection");
}

void Connections::take_error() {
  fi_eq_err_entry entry{};
  if (fi_eq_readerr(endpoints_.events(), &entry, 0) < 0) return;
  Connection* const connection = table_.find(entry.fid);
  if (connection == nullptr) return;
  if (!connection->carries()) table_.of(connection->peer).last_error = static_cast<std::uint16_t>(entry.err);
  ended(*connection, fi_strerror(entry.err));
}

bool Connections::progress() {
  constexpr std::size_t kMostData = 256;
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + kMostData> buffer;
  bool any = false;
  while (true) {
    std::uint32_t event = 0;
    const ssize_t bytes = fi_eq_read(endpoints_.events(), &event, buffer.data(), buffer.size(), 0);
    if (bytes == -FI_EAVAIL) {
      take_error();
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

// The time without use after which the connection may be evicted.
PeerState::Clock::duration idle_limit(const PeerState& peer_state) {
  return std::max<PeerState::Clock::duration>(peer_state.idle_limit, Timing::kShortestIdle);
}

}  // namespace

void ConnectionEviction::share_node(std::size_t processes) {
  if (processes <= node_processes_) return;
  node_processes_ = processes;
  const std::size_t most = connections_.room().most_connections(processes);
  if (most == 0 || most >= most_) return;
  most_ = most;
  log(LogLevel::kInfo, "FARSIDE_CONNECTIONS={}, but {}, with {} processes on the node, admit {} connections", asked_,
      connections_.room().what_limits(), processes, most);
}

void ConnectionEviction::make_room() {
  const Clock::time_point now = Clock::now();
  if (now < make_room_again_) return;
  make_room_again_ = now + Timing::kRoomAgain;
  std::vector<std::pair<Clock::time_point, PeerState*>> candidates;  // by their last use
  connections_.table().for_each_present([&](const Connection& connection) {
    if (connection.state != Connection::State::kConnected || connections_.table().is_self(connection.peer)) return;
    PeerState& peer_state = states_.of(connection.peer);
    if (now - connection.since < idle_limit(peer_state)) return;
    const Clock::time_point last_use = PeerStates::last_use(peer_state, now);
    if (now - last_use >= Timing::kShortestIdle && !peer_state.any_in_flight())
      candidates.emplace_back(last_use, &peer_state);
  });
  const std::size_t count = connections_.count();
  std::size_t too_many = most_ > 0 && count > most_ ? count - most_ : 0;
  const bool shortage = std::exchange(connections_.room().shortage, false);
  if (shortage) too_many = std::max(too_many, count / kPartInShortage + 1);
  std::ranges::sort(candidates);
  candidates.resize(std::min(too_many, candidates.size()));
  for (const auto& [_, peer_state] : candidates) ask_to_disconnect(*peer_state, shortage);
}

void ConnectionEviction::ask_to_disconnect(PeerState& peer_state, bool shortage) {
  const Peer peer = peer_state.peer;
  {
    // Another thread may have issued meanwhile. Without an endpoint it needs Fabric's mutex first.
    const std::scoped_lock held(peer_state.mutex);
    if (peer_state.in_flight > 0) return;
    peer_state.endpoint = nullptr;
  }
  const std::size_t count = connections_.count();
  if (replies_.send(make_disconnect(peer)) != 0) return;
  log(LogLevel::kInfo, "{} connections, {}: one that was not used is to be closed", count,
      shortage ? "and no descriptor or memory for another"
               : fmt::format("{}={}", most_ == asked_ ? "FARSIDE_CONNECTIONS" : "the process's share", most_));
  Connection& connection = *connections_.present(peer);
  const bool soon = Clock::now() - connection.since < Timing::kReopenedSoon * idle_limit(peer_state);
  peer_state.idle_limit = soon ? std::min<Clock::duration>(2 * idle_limit(peer_state), Timing::kLongestIdle)
                               : Clock::duration(Timing::kShortestIdle);
  connections_.table().begin_disconnect(connection);
}

std::unique_ptr<Reply> ConnectionEviction::make_disconnect(Peer peer) {
  std::unique_ptr<Reply> request = replies_.take(peer);
  request->header.kind = MessageKind::kDisconnect;
  request->header.operation = connections_.number(peer);
  request->probe = true;  // no warning if it does not arrive
  return request;
}

void ConnectionEviction::leave_all() {
  connections_.table().for_each_present([this](const Connection& connection) {
    if (connection.carries() && !connection.disconnect_sent) replies_.keep(make_disconnect(connection.peer));
  });
}

// When nothing of this process is in flight on the connection, ends it if it has sent DISCONNECT before, else sends it
// now. Returns whether it has done so.
bool ConnectionEviction::ends(Peer peer) {
  Connection* const connection = connections_.present(peer);
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->in_order) return true;
  if (states_.any_issued(peer)) return false;
  if (connection->disconnect_sent) return connections_.disconnect(peer);
  return replies_.send(make_disconnect(peer)) != -FI_EAGAIN;
}

void ConnectionEviction::receive(std::span<const std::byte> message) {
  ReplyHeader header{};
  if (message.size() != sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  // The connection may have ended since.
  const std::optional<Peer> peer = connections_.peer_of(header.operation);
  if (!peer) return;
  Connection& connection = *connections_.present(*peer);
  connections_.table().begin_disconnect(connection);
  connection.in_order = true;
  {
    // Those of this process arrive, since the sender ends the connection behind the DISCONNECT of this process.
    PeerState& peer_state = states_.of(*peer);
    const std::scoped_lock held(peer_state.mutex);
    peer_state.confirmed = peer_state.notifications;
  }
  if (std::ranges::find(disconnecting_, *peer) == disconnecting_.end()) disconnecting_.push_back(*peer);
}

void ConnectionEviction::disconnect_idle() {
  std::erase_if(disconnecting_, [this](Peer peer) { return ends(peer); });
}

}  // namespace farside
