// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/tcp_path.hpp"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace farside {
namespace {

// An IP address in 16 bytes (IPv4 as IPv4-mapped IPv6, as sockets of either family may carry it) and a port; network
// order.
struct Place {
  std::array<std::uint8_t, 16> machine{};
  std::uint16_t port = 0;
  bool operator==(const Place&) const = default;
};

bool read_place(const void* address, std::size_t bytes, Place& out) {
  sockaddr_storage any{};
  std::memcpy(&any, address, std::min(bytes, sizeof any));
  if (any.ss_family == AF_INET && bytes >= sizeof(sockaddr_in)) {
    sockaddr_in v4{};
    std::memcpy(&v4, &any, sizeof v4);
    out.machine[10] = out.machine[11] = 0xff;
    std::memcpy(out.machine.data() + 12, &v4.sin_addr, 4);
    out.port = v4.sin_port;
    return true;
  }
  if (any.ss_family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &any, sizeof v6);
    std::memcpy(out.machine.data(), &v6.sin6_addr, 16);
    out.port = v6.sin6_port;
    return true;
  }
  return false;
}

// Returns whether `descriptor` is a TCP connection, and reads its state. The descriptor may be closed and reused at
// any time, so callers use the state only if the addresses are those of an endpoint.
bool look_at(int descriptor, TcpConnection& out) {
  socklen_t bytes = sizeof out.there;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&out.there), &bytes) != 0) return false;
  if (out.there.ss_family != AF_INET && out.there.ss_family != AF_INET6) return false;
  bytes = sizeof out.here;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&out.here), &bytes) != 0) return false;
  tcp_info info{};
  bytes = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  // Data were sent again at least once; or, where the peer has no room, a second window probe was sent (an answer
  // sets the count to 0).
  out.unanswered = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 1;
  out.silent = std::chrono::milliseconds(info.tcpi_last_ack_recv);
  return true;
}

template <class Do>
void for_each_connection(Do&& act) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    char* end = nullptr;
    const long descriptor = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0') continue;
    TcpConnection connection;
    if (look_at(static_cast<int>(descriptor), connection)) act(static_cast<int>(descriptor), connection);
  }
}

}  // namespace

std::vector<TcpConnection> tcp_connections() {
  std::vector<TcpConnection> found;
  for_each_connection([&](int, const TcpConnection& connection) { found.push_back(connection); });
  return found;
}

int end_tcp_connection(const sockaddr_storage& here, const sockaddr_storage& there) {
  Place end_here, end_there;
  if (!read_place(&here, sizeof here, end_here) || !read_place(&there, sizeof there, end_there)) return -1;
  int found = -1;
  for_each_connection([&](int descriptor, const TcpConnection& connection) {
    Place one, other;
    if (!read_place(&connection.here, sizeof connection.here, one) ||
        !read_place(&connection.there, sizeof connection.there, other))
      return;
    if (one == end_here && other == end_there) found = descriptor;
  });
  if (found >= 0) ::shutdown(found, SHUT_RDWR);
  return found;
}

std::optional<std::chrono::milliseconds> silent_while_asked(const std::vector<TcpConnection>& connections,
                                                            const FabricAddress& own, const FabricAddress& peer) {
  Place listens_here, listens_there;
  if (!read_place(own.bytes.data(), own.size, listens_here)) return {};
  if (!read_place(peer.bytes.data(), peer.size, listens_there)) return {};
  bool asked = false;
  std::chrono::milliseconds silent = std::chrono::milliseconds::max();
  for (const TcpConnection& each : connections) {
    Place here, there;
    if (!read_place(&each.here, sizeof each.here, here) || !read_place(&each.there, sizeof each.there, there)) continue;
    const bool made_here = there == listens_there;
    const bool made_there = here.port == listens_here.port && there.machine == listens_there.machine;
    if (!made_here && !made_there) continue;
    asked = asked || each.unanswered;
    silent = std::min(silent, each.silent);
  }
  if (!asked) return {};
  return silent;
}

}  // namespace farside
