// SPDX-License-Identifier: BSD-3-Clause
// The kernel's state of TCP connections of this process. The kernel of a stopped process, or of one without buffer
// space, still acknowledges data. Behind a cut cable nothing is acknowledged, although the socket's buffer takes data
// and TCP retries for a quarter of an hour. These functions only read the state, except those that
// end a connection.
//
// libfabric does not say which descriptor an endpoint has, so a search among the process's descriptors finds it, once
// per connection.
//
// Thread safety: any thread may call them. Cost: tcp_state three system calls; a search one to three for each
// descriptor of the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/address.hpp"

namespace farside {

// The two ends of a connection.
struct TcpEnds {
  SocketAddress here;
  SocketAddress there;
  bool operator==(const TcpEnds&) const = default;
};

// Where a peer is connected over TCP: the connection's number (connections.hpp), its ends, and its descriptor if it was
// found before, else -1.
struct TcpPath {
  std::uint64_t number = 0;
  TcpEnds ends;
  int socket = -1;
};

struct TcpState {
  bool unanswered = false;               // data were sent, sent again, and are still not acknowledged
  std::chrono::milliseconds silent{};    // time since the last arrival of anything, acknowledgements included
};

// Returns the descriptors of the connections, -1 for one that this process does not have.
std::vector<int> find_tcp_sockets(std::span<const TcpEnds> connections);

// Returns the state of the connection if `socket` is its descriptor. The descriptor may have been closed and reused.
std::optional<TcpState> tcp_state(int socket, const TcpEnds& connection);

// A connection to the listener on which its other end has sent nothing yet.
struct SilentSocket {
  int socket = -1;
  TcpEnds ends;
  std::chrono::milliseconds age{};
};
std::vector<SilentSocket> find_silent_sockets(const SocketAddress& listener);
// Ends it, unless something has arrived since. With Fabric's mutex, under which the provider closes such sockets.
void end_silent_socket(const SilentSocket& silent);

// Ends the connection in both directions (shutdown(2)): only data that have arrived already can still be received on
// it. Returns its descriptor, which stays open and belongs to the provider; -1 if this process has no such connection.
int end_tcp_connection(const TcpEnds& connection);

}  // namespace farside
