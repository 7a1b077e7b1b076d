// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connection_endpoints.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>

#include "transport/fabric/socket_address.hpp"

namespace farside {

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
    constexpr std::chrono::milliseconds kLongest{50};
    constexpr int kPollsForTheEnd = 4;
    const int socket = end_tcp_connection(*ends);
    int at_end = 0;
    for (const auto end = Clock::now() + kLongest; socket >= 0 && at_end < kPollsForTheEnd && Clock::now() < end;) {
      char next = 0;
      at_end = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) > 0 ? 0 : at_end + 1;
      fi_cq_read(queue, nullptr, 0);  // polls, and takes nothing
    }
  }
  fi_shutdown(endpoint, 0);
}

}  // namespace farside
