// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/sockets.hpp"

#include <linux/tcp.h>
#include <string>

#include "transport/base/files.hpp"

namespace farside {

namespace {

using NameCall = int (*)(int, sockaddr*, socklen_t*);

std::optional<SocketAddress> name_of(int socket, NameCall call) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  if (call(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
  return socket_address(&name, bytes);
}

}  // namespace

std::vector<int> find_tcp_sockets(std::span<const TcpEnds> connections) {
  std::vector<int> found(connections.size(), -1);
  for (const std::string& name : names_in("/proc/thread-self/fd")) {
    const int socket = std::stoi(name);
    const std::optional<SocketAddress> there = name_of(socket, ::getpeername), here = name_of(socket, ::getsockname);
    if (!here || !there) continue;
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (connections[i] == TcpEnds{*here, *there}) found[i] = socket;
    }
  }
  return found;
}

std::optional<TcpState> tcp_state(int socket, const TcpEnds& connection) {
  if (socket < 0 || name_of(socket, ::getpeername) != connection.there ||
      name_of(socket, ::getsockname) != connection.here)
    return {};
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  // Data were sent again at least once; or, where the peer has no room, a second window probe was sent (an answer
  // sets the count to 0).
  return TcpState{(info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 1,
                  std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

int end_tcp_connection(const TcpEnds& connection) {
  const int socket = find_tcp_sockets(std::span(&connection, 1)).front();
  if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  return socket;
}

}  // namespace farside
