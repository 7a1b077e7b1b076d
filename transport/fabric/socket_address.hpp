// SPDX-License-Identifier: BSD-3-Clause
// Conversions between SocketAddress and the sockaddr of sockets and libfabric. Other kinds of address have no
// SocketAddress: those of InfiniBand without IP (AF_IB), and those that are names.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <optional>

#include "transport/base/address.hpp"

namespace farside {

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

}  // namespace farside
