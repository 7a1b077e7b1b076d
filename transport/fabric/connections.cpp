// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connections.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/base/unique_fd.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/socket_address.hpp"

namespace farside {
namespace {

constexpr std::uint32_t kMagic = 0x46415253;  // FARS
constexpr std::uint32_t kVersion = 3;
// The back-off after a refused request: the first, and the longest.
constexpr std::chrono::milliseconds kTryAgain{1}, kTryAgainLongest{100};

// Returns whether an error of connecting says that this process or its node has no room for another connection.
bool is_shortage(int error) {
  constexpr std::array kShortages{EMFILE, ENFILE, ENOMEM, ENOBUFS};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

// Returns whether an error of connecting may pass by itself: a cable was cut, the peer is too busy to accept, or there
// will be room again.
bool passes(int error) {
  constexpr std::array kPassing{ENETUNREACH,  EHOSTUNREACH, ENETDOWN,      EHOSTDOWN, ECONNREFUSED, ECONNRESET,
                                ECONNABORTED, ETIMEDOUT,    EADDRNOTAVAIL, EAGAIN,    EINTR};
  return is_shortage(error) || std::ranges::find(kPassing, error) != kPassing.end();
}

std::optional<TcpEnds> ends_of(fid_ep* endpoint) {
  sockaddr_storage here{}, there{};
  std::size_t here_bytes = sizeof here, there_bytes = sizeof there;
  if (fi_getname(&endpoint->fid, &here, &here_bytes) != 0 || fi_getpeer(endpoint, &there, &there_bytes) != 0) return {};
  const auto mine = socket_address(&here, here_bytes), other = socket_address(&there, there_bytes);
  if (!mine || !other) return {};
  return TcpEnds{*mine, *other};
}

}  // namespace

Result<std::unique_ptr<Connections>> Connections::open(const Domain& domain, Lost lost, Opening opening) {
  std::unique_ptr<Connections> opened(new Connections(domain, std::move(lost), std::move(opening)));
  if (Status status = opened->set_up(); !status) return status.error();
  return opened;
}

Connections::Connections(const Domain& domain, Lost lost, Opening opening)
    : domain_(domain),
      by_adapter_(is_adapter(*domain.info)),
      lost_(std::move(lost)),
      how_to_open_(std::move(opening)) {
  if (!how_to_open_.by_thread) return;
  opener_ = std::make_unique<EndpointOpener>(
      [this](const SocketAddress& address, FabricHandle<fid_ep>& out) { return open_towards(address, out); },
      how_to_open_.opened);
}

Status Connections::set_up() {
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  if (Status s = open_step("fi_eq_open", fi_eq_open(domain_.fabric, &eq_attr, &events, nullptr), events, events_); !s)
    return s;
  int code = fi_control(&events->fid, FI_GETWAIT, &events_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the event queue's file descriptor", code);

  fi_rx_attr rx_attr = *domain_.info->rx_attr;
  rx_attr.size = std::max(rx_attr.size, domain_.receives);
  fid_ep* receives = nullptr;
  code = fi_srx_context(domain_.domain, &rx_attr, &receives, nullptr);
  if (code != 0 && rx_attr.size > domain_.info->rx_attr->size) {
    rx_attr.size = domain_.info->rx_attr->size;
    code = fi_srx_context(domain_.domain, &rx_attr, &receives, nullptr);
  }
  if (Status s = open_step("fi_srx_context", code, receives, receives_); !s) return s;
  most_receives_ = rx_attr.size;

  fid_pep* listener = nullptr;
  if (Status s = open_step("fi_passive_ep", fi_passive_ep(domain_.fabric, domain_.info, &listener, nullptr), listener,
                           listener_);
      !s) {
    return s;
  }
  code = fi_pep_bind(listener, &events->fid, 0);
  if (code == 0) code = fi_listen(listener);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "listening for connections", code);
  sockaddr_storage name{};
  std::size_t bytes = sizeof name;
  code = fi_getname(&listener->fid, &name, &bytes);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "fi_getname", code);
  const std::optional<SocketAddress> socket = socket_address(&name, bytes);
  if (!socket) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("device {} has no IPv4 or IPv6 address, and peers cannot connect to its address of "
                             "family {}",
                             domain_.info->domain_attr->name, name.ss_family)};
  }
  address_.socket = *socket;
  address_.identity = random_bits();
  address_.secret = random_bits();
  return {};
}

Connections::~Connections() {
  // Endpoints before what they are bound to; before all, the thread that opens some.
  opener_.reset();
  listener_.reset();
  for (auto& [_, connection] : connections_) {
    if (connection->carries()) fi_shutdown(connection->endpoint.get(), 0);
  }
  connections_.clear();
}

Peer Connections::find(std::uint64_t identity) {
  const auto [found, added] = by_identity_.try_emplace(identity, peers_.size());
  if (added) peers_.emplace_back().address.identity = identity;
  return found->second;
}

std::optional<Peer> Connections::find_connected(std::uint64_t identity) const {
  const auto found = by_identity_.find(identity);
  if (found == by_identity_.end()) return {};
  return found->second;
}

Peer Connections::insert(const FabricAddress& address) {
  // The peer may have connected before its address was inserted.
  const Peer peer = find(address.identity);
  peers_[peer].address = address;
  return peer;
}

// The opener's thread calls this and open_towards: they read only what set_up() has made.
ssize_t Connections::open_endpoint(fi_info* info, FabricHandle<fid_ep>& out) const {
  info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  fid_ep* endpoint = nullptr;
  int code = fi_endpoint(domain_.domain, info, &endpoint, nullptr);
  if (code != 0) return code;
  out.reset(endpoint);
  code = fi_ep_bind(endpoint, &events_->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint, &domain_.queue->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0) code = fi_ep_bind(endpoint, &receives_->fid, 0);
  if (code == 0) code = fi_enable(endpoint);
  return code;
}

ssize_t Connections::open_towards(const SocketAddress& address, FabricHandle<fid_ep>& out) const {
  if (how_to_open_.resolve) {
    if (const int code = how_to_open_.resolve(address); code != 0) return code;
  }
  const Sockaddr there = to_sockaddr(address);
  const InfoHandle info(fi_dupinfo(domain_.info));
  if (info == nullptr) return -FI_ENOMEM;
  info->dest_addrlen = there.bytes;
  info->dest_addr = std::malloc(there.bytes);  // fi_freeinfo frees it: NOLINT(cppcoreguidelines-no-malloc)
  if (info->dest_addr == nullptr) return -FI_ENOMEM;
  std::memcpy(info->dest_addr, &there.any, there.bytes);
  return open_endpoint(info.get(), out);
}

Connections::Connection* Connections::add(FabricHandle<fid_ep> endpoint, Peer peer, State state,
                                                        bool initiated, std::uint64_t number) {
  if (!by_adapter_) descriptors_.allow(connections_.size() + 1);
  fid* const key = &endpoint->fid;
  auto connection = std::make_unique<Connection>();
  connection->endpoint = std::move(endpoint);
  connection->peer = peer;
  connection->number = number;
  connection->state = state;
  connection->initiated = initiated;
  // The two ends of a connection to this process itself do not count towards the limit.
  connection->counted = peers_[peer].address.identity != address_.identity;
  if (connection->counted) ++to_stay_;
  ++in_progress_;
  if (state == State::kConnecting) ++initiated_;
  return (connections_[key] = std::move(connection)).get();
}

ssize_t Connections::reach(Peer peer, fid_ep*& endpoint, What what) {
  Known& known = peers_[peer];
  const auto carries = [what](const Connection& connection) {
    return connection.state == State::kConnected || (what == What::kAnswer && connection.carries());
  };
  if (known.current != nullptr && carries(*known.current)) [[likely]] {
    endpoint = known.current->endpoint.get();
    return 0;
  }
  if (known.current != nullptr) return -FI_EAGAIN;
  // A peer that has connected to this process, and whose address no operation needed: it must connect again.
  if (known.address.socket.family == 0) return -FI_ENOTCONN;
  if (!known.waits && !known.opening && !known.failed && Clock::now() >= known.not_before) {
    known.waits = true;
    waiting_.push_back(peer);
  }
  connect_waiting();
  if (std::exchange(known.failed, false)) return -known.trouble;
  return -FI_EAGAIN;
}

// Connects to the peers that wait, as far as there are places. An error is left for those who asked (reach).
void Connections::connect_waiting() {
  while (initiated_ + opening_ < kMostInitiated && !waiting_.empty()) {
    const Peer peer = waiting_.front();
    waiting_.pop_front();
    Known& known = peers_[peer];
    if (!std::exchange(known.waits, false) || known.current != nullptr) continue;
    if (const ssize_t code = connect(peer); code != 0) not_connected(known, code);
  }
}

// Notes why there is no connection, and when to try again.
void Connections::not_connected(Known& known, ssize_t code) {
  const auto error = static_cast<int>(-code);
  known.trouble = static_cast<std::uint16_t>(error);
  known.failed = !passes(error);
  note_shortage(error);
  back_off(known);
}

// Where the process has no descriptor left, its soft limit may have been lowered, or others need many.
void Connections::note_shortage(int error) {
  if (!is_shortage(error)) return;
  if (error == EMFILE && descriptors_.raise(connections_.size() + 1)) return;
  shortage_ = true;
}

void Connections::look_for_shortage() {
  if (const UniqueFd one(::fcntl(events_fd_, F_DUPFD_CLOEXEC, 0)); !one.valid()) note_shortage(errno);
}

ssize_t Connections::connect(Peer peer) {
  Known& known = peers_[peer];
  if (opener_ != nullptr) {
    if (const Status asked = opener_->request(peer, known.address.socket); !asked) {
      log(LogLevel::kInfo, "connecting to a peer is tried again: {}", asked.error().text);
      return -FI_EAGAIN;
    }
    known.opening = true;
    ++opening_;
    return 0;
  }
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = open_towards(known.address.socket, endpoint); code != 0) return code;
  return request(peer, std::move(endpoint));
}

// Requests a connection by an endpoint that is open.
ssize_t Connections::request(Peer peer, FabricHandle<fid_ep> endpoint) {
  const FabricAddress& address = peers_[peer].address;
  const Sockaddr there = to_sockaddr(address.socket);
  const Hello hello{kMagic, kVersion, address_.identity, address.secret, random_bits(), ++attempts_};
  if (const int code = fi_connect(endpoint.get(), &there.any, &hello, sizeof hello); code != 0) return code;
  set_current(peer, add(std::move(endpoint), peer, State::kConnecting, true, hello.number));
  return 0;
}

// Takes the endpoints that the opener has opened. Returns whether there were any.
bool Connections::take_opened() {
  bool any = false;
  while (std::optional<EndpointOpener::Opened> opened = opener_->take()) {
    Known& known = peers_[opened->peer];
    known.opening = false;
    --opening_;
    const ssize_t code = opened->code != 0 ? opened->code : request(opened->peer, std::move(opened->endpoint));
    if (code != 0) not_connected(known, code);
    any = true;
  }
  return any;
}

void Connections::cancel_opening(Peer peer) {
  if (!std::exchange(peers_[peer].opening, false)) return;
  --opening_;
  opener_->cancel(peer);
}

// `hello` null: the request did not come from farside.
void Connections::take_request(fi_info* info, const Hello* hello) {
  const auto refuse = [&] { fi_reject(listener_.get(), info->handle, nullptr, 0); };
  if (hello == nullptr || hello->magic != kMagic || hello->version != kVersion || hello->secret != address_.secret) {
    log(LogLevel::kWarn, "a connection from outside of the job was refused");
    return refuse();
  }
  const Peer peer = find(hello->from);
  const bool self = hello->from == address_.identity;
  if (!self) cancel_opening(peer);  // no request of this process is under way
  // A loop, since `ended` takes completions, and answers to them may have begun another connection.
  while (Connection* mine = self ? nullptr : peers_[peer].current) {
    if (mine->state == State::kConnecting) {
      if (address_.identity < hello->from) return refuse();
      end(*mine);  // it is freed when its refusal arrives
      set_current(peer, nullptr);
    } else {
      if (hello->attempt <= peers_[peer].attempt) return refuse();
      shut_down(*mine);
      ended(*mine, "it has connected again");
    }
  }
  peers_[peer].attempt = std::max(peers_[peer].attempt, hello->attempt);
  FabricHandle<fid_ep> endpoint;
  if (const ssize_t code = open_endpoint(info, endpoint); code != 0) {
    note_shortage(static_cast<int>(-code));
    log(LogLevel::kWarn, "a peer's connection was refused: {}",
        fabric_error(ErrorKind::kPeer, "opening an endpoint", code).text);
    endpoint.reset();  // before the request that it refers to
    return refuse();
  }
  // Only a process that has this process's address from the exchange knows its identity.
  const Hello answer{kMagic, kVersion, address_.identity, 0, hello->number, attempts_};
  if (const int code = fi_accept(endpoint.get(), &answer, sizeof answer); code != 0) {
    log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "accepting a connection", code).text);
    return;
  }
  Connection* connection = add(std::move(endpoint), peer, State::kAccepting, false, hello->number);
  if (!self) set_current(peer, connection);
}

void Connections::established(Connection& connection, const Hello* hello) {
  if (connection.state == State::kEnded) return close(connection);
  Known& known = peers_[connection.peer];
  if (connection.initiated && (hello == nullptr || hello->magic != kMagic || hello->from != known.address.identity)) {
    return ended(connection, "another process answers at its address");
  }
  if (hello != nullptr) known.attempt = std::max(known.attempt, hello->attempt);
  no_longer_in_progress(connection.state);
  connection.state = connection.to_disconnect ? State::kDisconnecting : State::kConnected;
  connection.since = Clock::now();
  known.refused = 0;
  known.trouble = 0;
}

Connections::Clock::duration Connections::age(Peer peer) const {
  const Connection* const connection = peers_[peer].current;
  const bool stays = connection == nullptr || connection->state != State::kConnected ||
                     peers_[peer].address.identity == address_.identity;
  return stays ? Clock::duration::zero() : Clock::now() - connection->since;
}

std::size_t Connections::most_connections(std::size_t processes) const {
  if (!by_adapter_) return std::max<std::size_t>(descriptors_.most_connections(processes), 1);
  return connections_of_adapter(domain_.info->domain_attr->ep_cnt, processes);
}

std::uint64_t Connections::number(Peer peer) const {
  return peers_[peer].current != nullptr ? peers_[peer].current->number : 0;
}

std::optional<Connections::TcpPath> Connections::tcp_path(Peer peer) const {
  const Connection* const connection = peers_[peer].current;
  if (connection == nullptr || !connection->carries()) return {};
  const std::optional<TcpEnds> ends = ends_of(connection->endpoint.get());
  if (!ends) return {};
  return TcpPath{connection->number, *ends, connection->socket};
}

void Connections::found_socket(Peer peer, int socket) { peers_[peer].current->socket = socket; }

std::optional<Peer> Connections::peer_of(std::uint64_t number) const {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return {};
  return found->second;
}

// Numbers of peers' requests come from the network: where two are equal, peer_of knows the first one.
void Connections::set_current(Peer peer, Connection* connection) {
  Connection*& current = peers_[peer].current;
  if (current != nullptr) {
    const auto found = by_number_.find(current->number);
    if (found != by_number_.end() && found->second == peer) by_number_.erase(found);
  }
  current = connection;
  if (connection != nullptr) by_number_.try_emplace(connection->number, peer);
}

void Connections::begin_disconnect(Peer peer) {
  Connection& connection = *peers_[peer].current;
  connection.to_disconnect = true;
  stop_counting(connection);
  if (connection.state == State::kConnected) connection.state = State::kDisconnecting;
}

// The other side gets an event and ends the connection as well.
bool Connections::disconnect(Peer peer) {
  Connection* const connection = peers_[peer].current;
  // The present connection may be a newer one.
  if (connection == nullptr || !connection->to_disconnect) return true;
  if (connection->state != State::kDisconnecting) return false;
  forget(*connection);
  end(*connection);
  fi_shutdown(connection->endpoint.get(), 0);
  close(*connection);
  return true;
}

// The next operation connects again, after a back-off.
void Connections::forget(Connection& connection) {
  Known& known = peers_[connection.peer];
  if (known.current != &connection) return;
  set_current(connection.peer, nullptr);
  back_off(known);
}

void Connections::back_off(Known& known) {
  constexpr std::uint16_t kDoublings = 7;
  const auto wait = kTryAgain * (1U << known.refused);
  known.not_before = Clock::now() + std::min<std::chrono::milliseconds>(wait, kTryAgainLongest);
  if (known.refused < kDoublings) ++known.refused;
}

Connections::State Connections::end(Connection& connection) {
  stop_counting(connection);
  if (connection.state != State::kEnded) {
    connection.place = static_cast<std::uint32_t>(ended_.size());
    ended_.push_back(&connection);
  }
  no_longer_in_progress(connection.state);
  return std::exchange(connection.state, State::kEnded);
}

void Connections::no_longer_in_progress(State state) {
  if (state == State::kConnecting) --initiated_;
  if (state == State::kConnecting || state == State::kAccepting) --in_progress_;
}

void Connections::stop_counting(Connection& connection) {
  if (std::exchange(connection.counted, false)) --to_stay_;
}

// Called when the provider reports that the connection cannot be used any more. The provider fails operations on it.
// An adapter does so only when this side has shut the connection down as well: libfabric 1.17 leaves the queue pair
// as it is, and it goes on trying.
void Connections::ended(Connection& connection, const std::string& why) {
  forget(connection);
  const State before = end(connection);
  if (before != State::kConnected && before != State::kDisconnecting) return close(connection);
  if (by_adapter_) fi_shutdown(connection.endpoint.get(), 0);
  lost_(connection.peer, why);
}

// When this returns, the provider touches no buffer of an operation on the connection any more; all of them complete
// with errors. fi_shutdown(3) does that, but libfabric before 1.18 frees a read twice whose data are just arriving
// over TCP, and loses operations from then on. libfabric handles the end of a socket well. So this function first
// ends the socket, and polls the provider until it has received the data that had arrived, and the end.
void Connections::shut_down(Connection& connection) {
  fid_ep* const endpoint = connection.endpoint.get();
  if (const std::optional<TcpEnds> ends = by_adapter_ ? std::nullopt : ends_of(endpoint)) {
    // Limited in time, since messages for which no receive is posted are not taken here.
    constexpr std::chrono::milliseconds kLongest{50};
    constexpr int kPollsForTheEnd = 4;
    const int socket = end_tcp_connection(*ends);
    int at_end = 0;
    for (const auto end = Clock::now() + kLongest; socket >= 0 && at_end < kPollsForTheEnd && Clock::now() < end;) {
      char next = 0;
      at_end = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) > 0 ? 0 : at_end + 1;
      fi_cq_read(domain_.queue, nullptr, 0);  // polls, and takes nothing
    }
  }
  fi_shutdown(endpoint, 0);
}

// A queue pair that has reported an error takes nothing more, and no event says that its connection has ended.
void Connections::failed(Peer peer, const fid_ep* endpoint, const std::string& why) {
  Connection* const connection = peers_[peer].current;
  if (!by_adapter_ || connection == nullptr || connection->endpoint.get() != endpoint) return;
  if (connection->carries()) ended(*connection, why);
}

void Connections::stop(Peer peer) {
  Known& known = peers_[peer];
  known.waits = known.failed = false;
  if (known.opening) {
    cancel_opening(peer);
    back_off(known);
  }
  Connection* const connection = known.current;
  if (connection == nullptr) return;
  forget(*connection);
  const State before = end(*connection);
  if (before == State::kConnecting || before == State::kAccepting) {
    close(*connection);
  } else {
    shut_down(*connection);
  }
}

// Precondition: the connection is in kEnded.
void Connections::close(Connection& connection) {
  ended_[connection.place] = ended_.back();
  ended_[connection.place]->place = connection.place;
  ended_.pop_back();
  connections_.erase(&connection.endpoint->fid);
}

void Connections::take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes) {
  Hello hello{};
  const bool has_hello = bytes >= sizeof entry + sizeof hello;
  if (has_hello) std::memcpy(&hello, entry.data, sizeof hello);
  if (event == FI_CONNREQ) {
    const InfoHandle info(entry.info);
    return take_request(info.get(), has_hello ? &hello : nullptr);
  }
  const auto found = connections_.find(entry.fid);
  if (found == connections_.end()) return;
  if (event == FI_CONNECTED) established(*found->second, has_hello ? &hello : nullptr);
  if (event == FI_SHUTDOWN) ended(*found->second, "it has closed the connection");
}

void Connections::take_error() {
  fi_eq_err_entry entry{};
  if (fi_eq_readerr(events_.get(), &entry, 0) < 0) return;
  const auto found = connections_.find(entry.fid);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (!connection.carries()) peers_[connection.peer].trouble = static_cast<std::uint16_t>(entry.err);
  ended(connection, fi_strerror(entry.err));
}

bool Connections::progress() {
  constexpr std::size_t kMostData = 256;
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + kMostData> buffer;
  bool any = false;
  while (true) {
    std::uint32_t event = 0;
    const ssize_t bytes = fi_eq_read(events_.get(), &event, buffer.data(), buffer.size(), 0);
    if (bytes == -FI_EAVAIL) {
      take_error();
    } else if (bytes >= static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      take_event(event, *reinterpret_cast<const fi_eq_cm_entry*>(buffer.data()), static_cast<std::size_t>(bytes));
    } else {
      break;
    }
    any = true;
  }
  if (opening_ > 0) any = take_opened() || any;
  if (!waiting_.empty()) connect_waiting();
  return any;
}

}  // namespace farside
