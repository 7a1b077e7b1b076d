// SPDX-License-Identifier: BSD-3-Clause
// TCP's sockets: the conversion of addresses, and the kernel's state of this process's connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "transport/base/address.hpp"

namespace farside {

// Conversions between SocketAddress and the sockaddr of sockets and libfabric. Other kinds of address have no
// SocketAddress: those of InfiniBand without IP (AF_IB), and those that are names.
inline std::optional<SocketAddress> socket_address(const void* address, std::size_t bytes) {
  SocketAddress result;
  if (bytes >= sizeof result.family) std::memcpy(&result.family, address, sizeof result.family);
  if (result.family == AF_INET && bytes >= sizeof(sockaddr_in)) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    std::memcpy(result.host.data(), &v4.sin_addr, sizeof v4.sin_addr);
    result.port = v4.sin_port;
    return result;
  }
  if (result.family == AF_INET6 && bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    std::memcpy(result.host.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    result.scope = v6.sin6_scope_id;
    result.port = v6.sin6_port;
    return result;
  }
  return {};
}

struct Sockaddr {
  sockaddr_storage any{};
  std::size_t bytes = 0;
};

// Precondition: the address has a family.
inline Sockaddr to_sockaddr(const SocketAddress& address) {
  Sockaddr result;
  if (address.family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = address.port;
    std::memcpy(&v4.sin_addr, address.host.data(), sizeof v4.sin_addr);
    result.bytes = sizeof v4;
    std::memcpy(&result.any, &v4, sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = address.port;
    std::memcpy(&v6.sin6_addr, address.host.data(), sizeof v6.sin6_addr);
    v6.sin6_scope_id = address.scope;
    result.bytes = sizeof v6;
    std::memcpy(&result.any, &v6, sizeof v6);
  }
  return result;
}

// The kernel's state of TCP connections of this process. The kernel of a stopped process, or of one without buffer
// space, still acknowledges data. Behind a cut cable nothing is acknowledged, although the socket's buffer takes data
// and TCP retries for a quarter of an hour.
//
// Thread safety: any thread may call them. Cost: tcp_state three system calls; all others search among the process's
// descriptors, with one to three for each.

// The two ends of a connection.
struct TcpEnds {
  SocketAddress here;
  SocketAddress there;
  bool operator==(const TcpEnds&) const = default;
};

struct TcpState {
  bool unanswered = false;             // data were sent, sent again, and are still not acknowledged
  std::chrono::milliseconds silent{};  // time since the last arrival of anything, acknowledgements included
};

// Returns the descriptors of the connections, -1 for one that this process does not have.
std::vector<int> find_tcp_sockets(std::span<const TcpEnds> connections);

// Returns the state of the connection if `socket` is its descriptor. The descriptor may have been closed and reused.
std::optional<TcpState> tcp_state(int socket, const TcpEnds& connection);

// Ends the connection in both directions (shutdown(2)): only data that have arrived already can still be received on
// it. Returns its descriptor, which stays open and belongs to the provider; -1 if this process has no such connection.
int end_tcp_connection(const TcpEnds& connection);

}  // namespace farside
