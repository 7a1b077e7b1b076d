// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connecting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>

#include "transport/base/files.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

namespace {

std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/thread-self/fd"), ::closedir);
  std::size_t count = 0;
  while (folder != nullptr && ::readdir(folder.get()) != nullptr) ++count;
  return count > 3 ? count - 3 : 0;  // ".", ".." and the folder itself
}

std::uint64_t files_of_node() {
  std::uint64_t most = 0;
  return std::ifstream("/proc/sys/fs/file-max") >> most ? most : UINT64_MAX;
}

}  // namespace

DescriptorLimit::DescriptorLimit() : open_(open_descriptors()), of_node_(files_of_node()) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_ = limit.rlim_max;
  allowed_ = connections_within(limit.rlim_cur, open_);
}

bool DescriptorLimit::raise(std::size_t connections) {
  constexpr rlim_t kLeast = 64;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_ = limit.rlim_max;
  const rlim_t before = limit.rlim_cur;
  do {
    limit.rlim_cur = limit.rlim_cur > limit.rlim_max / 2 ? limit.rlim_max : std::max(2 * limit.rlim_cur, kLeast);
    limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  } while (connections_within(limit.rlim_cur, open_) < connections && limit.rlim_cur < limit.rlim_max);
  if (before >= limit.rlim_max || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    allowed_ = SIZE_MAX;  // there are no more
    return false;
  }
  allowed_ = connections_within(limit.rlim_cur, open_);
  log(LogLevel::kInfo, "{} connections: the soft limit of descriptors (ulimit -n) is raised from {} to {}", connections,
      before, limit.rlim_cur);
  return true;
}

namespace {

// Returns whether an error of connecting says that this process or its node has no room for another connection.
bool is_shortage(int error) {
  constexpr std::array kShortages{EMFILE, ENFILE, ENOMEM, ENOBUFS};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

}  // namespace

bool is_transient_connect_error(int error) {
  constexpr std::array kPassing{ENETUNREACH, EHOSTUNREACH,  ENETDOWN, EHOSTDOWN, ECONNREFUSED, ECONNRESET, ECONNABORTED,
                                ETIMEDOUT,   EADDRNOTAVAIL, EAGAIN,   EINTR,     EBUSY,        ENETRESET,  EPIPE};
  return is_shortage(error) || std::ranges::find(kPassing, error) != kPassing.end();
}

std::size_t ConnectionRoom::most_connections(std::size_t processes) const {
  if (!domain_.by_adapter()) return std::max<std::size_t>(descriptors_.most_connections(processes), 1);
  return connections_of_adapter(domain_.info()->domain_attr->ep_cnt, processes);
}

const char* ConnectionRoom::what_limits() const {
  return domain_.by_adapter() ? "the adapter's queue pairs" : "descriptors (ulimit -Hn, fs.file-max)";
}

void ConnectionRoom::note_error(int error, std::size_t connections) {
  if (!is_shortage(error)) return;
  if (error == EMFILE && descriptors_.raise(connections + 1)) return;
  shortage_ = true;
}

void ConnectionRoom::look_for_shortage(int descriptor, std::size_t connections) {
  if (const UniqueFd one(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); !one.valid()) note_error(errno, connections);
}

Status ConnectionEndpoints::open(std::size_t receives_wanted) {
  fi_eq_attr eq_attr{};
  eq_attr.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  int code = fi_eq_open(domain_.fabric(), &eq_attr, &events, nullptr);
  if (Status s = open_step("fi_eq_open", code, events, events_); !s) return s;
  code = fi_control(&events->fid, FI_GETWAIT, &events_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the event queue's file descriptor", code);

  fi_rx_attr rx_attr = *domain_.info()->rx_attr;
  rx_attr.size = std::max(rx_attr.size, receives_wanted);
  fid_ep* receives = nullptr;
  code = fi_srx_context(domain_.domain(), &rx_attr, &receives, nullptr);
  if (code != 0 && rx_attr.size > domain_.info()->rx_attr->size) {
    rx_attr.size = domain_.info()->rx_attr->size;
    code = fi_srx_context(domain_.domain(), &rx_attr, &receives, nullptr);
  }
  if (Status s = open_step("fi_srx_context", code, receives, receives_); !s) return s;
  most_receives_ = rx_attr.size;

  fid_pep* listener = nullptr;
  code = fi_passive_ep(domain_.fabric(), domain_.info(), &listener, nullptr);
  if (Status s = open_step("fi_passive_ep", code, listener, listener_); !s) return s;
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
                             domain_.device(), name.ss_family)};
  }
  address_ = *socket;
  return {};
}

ssize_t ConnectionEndpoints::open_accepting(fi_info* info, MessageRing* ring, FabricHandle<fid_ep>& out) const {
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

ssize_t ConnectionEndpoints::open_towards(const SocketAddress& address, MessageRing* ring,
                                          FabricHandle<fid_ep>& out) const {
  if (resolve_) {
    if (const int code = resolve_(address); code != 0) return code;
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

std::optional<TcpEnds> ends_of(fid_ep* endpoint) {
  sockaddr_storage here{}, there{};
  std::size_t here_bytes = sizeof here, there_bytes = sizeof there;
  if (fi_getname(&endpoint->fid, &here, &here_bytes) != 0 || fi_getpeer(endpoint, &there, &there_bytes) != 0) return {};
  const auto mine = socket_address(&here, here_bytes), other = socket_address(&there, there_bytes);
  if (!mine || !other) return {};
  return TcpEnds{*mine, *other};
}

// fi_shutdown(3) alone would suffice, but libfabric before 1.18 frees a read twice if its data are just arriving over
// TCP, and loses operations from then on. libfabric handles the end of a socket correctly. So this function first ends
// the socket, and polls the provider until it has received the data that had arrived, and the end of the stream.
void shut_down(fid_ep* endpoint, fid_cq* queue) {
  using Clock = std::chrono::steady_clock;
  if (const std::optional<TcpEnds> ends = queue == nullptr ? std::nullopt : ends_of(endpoint)) {
    // Limited in time, since messages for which no receive is posted are not taken here.
    constexpr int kPollsForTheEnd = 4;
    const int socket = end_tcp_connection(*ends);
    int at_end = 0;
    for (const auto end = Clock::now() + Timing::kTcpEnd;
         socket >= 0 && at_end < kPollsForTheEnd && Clock::now() < end;) {
      char next = 0;
      at_end = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) > 0 ? 0 : at_end + 1;
      fi_cq_read(queue, nullptr, 0);  // polls, and takes nothing
    }
  }
  fi_shutdown(endpoint, 0);
}

EndpointOpener::~EndpointOpener() {
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status EndpointOpener::request(Peer peer, const SocketAddress& address) {
  bool busy = false;
  {
    const std::scoped_lock held(mutex_);
    busy = requests_.size() >= idle_;
  }
  if (busy && threads_.size() < most_threads_) {
    std::thread thread;
    Status started = start_own_thread(thread, "farside-opener", [this] { run(); });
    if (started) {
      threads_.push_back(std::move(thread));
    } else if (threads_.empty()) {
      return started;
    }
  }
  {
    const std::scoped_lock held(mutex_);
    requests_.push_back({peer, address, ++numbers_});
  }
  changed_.notify_one();
  return {};
}

void EndpointOpener::cancel(Peer peer) {
  const std::scoped_lock held(mutex_);
  const auto of_peer = [&](const auto& each) { return each.peer == peer; };
  std::erase_if(requests_, of_peer);
  std::erase_if(in_flight_, of_peer);
  std::erase_if(opened_, of_peer);
  ready_.store(!opened_.empty(), std::memory_order_relaxed);
}

bool EndpointOpener::begun(Peer peer) const {
  const std::scoped_lock held(mutex_);
  return std::ranges::none_of(requests_, [&](const Request& each) { return each.peer == peer; });
}

std::optional<EndpointOpener::Opened> EndpointOpener::take() {
  // Relaxed: the mutex orders what was opened, and after notify_() no call can miss it.
  if (!ready_.load(std::memory_order_relaxed)) return {};
  const std::scoped_lock held(mutex_);
  if (opened_.empty()) return {};
  Opened next = std::move(opened_.front());
  opened_.pop_front();
  ready_.store(!opened_.empty(), std::memory_order_relaxed);
  return next;
}

void EndpointOpener::run() {
  std::unique_lock held(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(held, [this] { return stop_ || !requests_.empty(); });
    --idle_;
    if (stop_) return;
    const Request request = requests_.front();
    requests_.pop_front();
    in_flight_.push_back(request);
    held.unlock();
    Opened opened{request.peer, 0, nullptr};
    opened.code = open_(request.address, opened.endpoint);
    if (opened.code != 0) opened.endpoint.reset();
    held.lock();
    const auto is_it = [&](const Request& each) { return each.number == request.number; };
    const bool wanted = std::erase_if(in_flight_, is_it) > 0;
    if (wanted) {
      opened_.push_back(std::move(opened));
      ready_.store(true, std::memory_order_relaxed);
    }
    held.unlock();
    if (wanted) {
      notify_();
    } else {
      opened.endpoint.reset();  // without the mutex: closing calls the provider; NOLINT(bugprone-use-after-move)
    }
    held.lock();
  }
}

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
