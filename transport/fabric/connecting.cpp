// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connecting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/resource.h>
#include <utility>

#include "transport/base/files.hpp"
#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

namespace {

std::size_t open_descriptors() {
  const std::size_t count = names_in("/proc/thread-self/fd").size();
  return count > 0 ? count - 1 : 0;  // without the folder itself
}

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

ConnectionRoom::ConnectionRoom(std::optional<std::size_t> queue_pairs) : queue_pairs_(queue_pairs) {
  if (queue_pairs_) return;
  open_ = open_descriptors();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_limit_ = limit.rlim_max;
  allowed_ = connections_within(limit.rlim_cur, open_);
}

std::size_t ConnectionRoom::most_connections(std::size_t processes) const {
  if (queue_pairs_ == 0) return 0;
  return std::max<std::size_t>(
      queue_pairs_ ? share_of_node(*queue_pairs_, processes) : connections_within(hard_limit_, open_), 1);
}

const char* ConnectionRoom::what_limits() const {
  return queue_pairs_ ? "the adapter's queue pairs" : "descriptors (ulimit -Hn)";
}

// Returns false if the soft limit cannot be raised any more.
bool ConnectionRoom::raise_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, std::max<rlim_t>(4 * before, 256));
  if (before >= limit.rlim_max || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    allowed_ = SIZE_MAX;  // there are no more
    return false;
  }
  allowed_ = connections_within(limit.rlim_cur, open_);
  log(LogLevel::kInfo, "the soft limit of descriptors (ulimit -n) is raised from {} to {}", before, limit.rlim_cur);
  return true;
}

void ConnectionRoom::note_error(int error) {
  if (is_shortage(error) && !(error == EMFILE && raise_limit())) shortage = true;
}

void ConnectionRoom::look_for_shortage(int descriptor) {
  if (const UniqueFd one(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); !one.valid()) note_error(errno);
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

// Those whose threads have ended.
void EndpointOpener::drop_cancelled() {
  openings_.remove_if([](const Opening& each) { return !each.wanted && each.done.load(std::memory_order_acquire); });
}

Status EndpointOpener::begin(Peer peer, const SocketAddress& address) {
  Opening& opening = openings_.emplace_back();
  opening.opened.peer = peer;
  Status started = start_own_thread(opening.thread, "farside-opener", [this, &opening, address] {
    opening.opened.code = open_(address, opening.opened.endpoint);
    if (opening.opened.code != 0) opening.opened.endpoint.reset();
    opening.done.store(true, std::memory_order_release);
    ended_();
  });
  if (!started) openings_.pop_back();
  return started;
}

bool EndpointOpener::cancel(Peer peer) {
  const auto found = find(peer);
  if (found == openings_.end()) return false;
  found->wanted = false;
  drop_cancelled();
  return true;
}

std::optional<EndpointOpener::Opened> EndpointOpener::take() {
  drop_cancelled();
  const auto found = std::ranges::find_if(
      openings_, [](const Opening& each) { return each.wanted && each.done.load(std::memory_order_acquire); });
  if (found == openings_.end()) return {};
  Opened next = std::move(found->opened);
  openings_.erase(found);
  return next;
}

}  // namespace farside
