// SPDX-License-Identifier: BSD-3-Clause
// The kernel's state of the TCP connections to a peer. The kernel of a stopped process, or of one without buffer
// space, still acknowledges data. Behind a cut cable nothing is acknowledged, although the socket's buffer takes data
// and TCP retries for a quarter of an hour. These functions only read the state, except end_tcp_connection.
//
// Thread safety: any thread may call them. Cost: a few microseconds for each descriptor of the process
// (getsockopt(2)).
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
  bool unanswered = false;               // data were sent, sent again, and are still not acknowledged
  std::chrono::milliseconds silent{};    // time since the last arrival of anything, acknowledgements included
};

// All TCP connections of this process.
std::vector<TcpConnection> tcp_connections();

// Returns for how long the peer's host has been silent while data await an acknowledgement; none if no data do, or if
// no connection belongs to the peer. `own` and `peer` are the addresses on which the two processes listen
// (fi_getname(3)). A connection that the peer made is identified by its host only. One connection on which the host
// is not silent shows that the host is there.
std::optional<std::chrono::milliseconds> silent_while_asked(const std::vector<TcpConnection>& connections,
                                                            const FabricAddress& own, const FabricAddress& peer);

// Ends the connection between these two addresses in both directions (shutdown(2)): only data that have arrived
// already can still be received on it. Returns its descriptor, which stays open and belongs to the provider; -1 if
// this process has no such connection.
int end_tcp_connection(const sockaddr_storage& here, const sockaddr_storage& there);

}  // namespace farside
