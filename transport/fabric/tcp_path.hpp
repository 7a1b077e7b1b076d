// SPDX-License-Identifier: BSD-3-Clause
// What the kernel knows of the way to a peer over TCP. A peer that is merely stopped, or has no room, still
// acknowledges what it is sent, as its kernel does that; behind a dead cable nothing is acknowledged, though the
// socket's buffer goes on taking data and TCP itself goes on trying for a quarter of an hour. Connections are only
// looked at, except by end_tcp_connection.
#pragma once

#include <chrono>
#include <optional>
#include <sys/socket.h>
#include <vector>

#include "transport/base/address.hpp"

namespace farside {

// A TCP connection of this process, as the kernel sees it.
struct TcpConnection {
  sockaddr_storage here{};
  sockaddr_storage there{};
  bool unanswered = false;               // something was sent, sent again, and is still not acknowledged
  std::chrono::milliseconds silent{};    // nothing, not even an acknowledgement, has come for so long
};

// All that there are. A few microseconds for each descriptor of the process.
std::vector<TcpConnection> tcp_connections();

// For how long the peer's machine has been silent although it is being asked; none if it is not asked, or if no
// connection is known to be the peer's. `own` and `peer` are where the two processes listen (fi_getname(3)).
// Connections that the peer made are known by its machine only: one of them that hears from it is enough for the
// machine to be there.
std::optional<std::chrono::milliseconds> silent_while_asked(const std::vector<TcpConnection>& connections,
                                                            const FabricAddress& own, const FabricAddress& peer);

// Ends the connection between these two addresses in both directions (shutdown(2)): nothing more is received on it but
// what is here already. Returns its descriptor, which stays open and the provider's; -1 if this process has no such
// connection.
int end_tcp_connection(const sockaddr_storage& here, const sockaddr_storage& there);

}  // namespace farside
