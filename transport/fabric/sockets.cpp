// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/sockets.hpp"

#include <linux/tcp.h>
#include <string>
#include <utility>

#include "transport/base/files.hpp"
#include "transport/base/timing.hpp"

namespace farside {

namespace {

using NameCall = int (*)(int, sockaddr*, socklen_t*);

std::optional<SocketAddress> name_of(int socket, NameCall call) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  if (call(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
  return socket_address(&name, bytes);
}

bool is_at(int socket, const TcpEnds& connection) {
  return name_of(socket, ::getpeername) == connection.there && name_of(socket, ::getsockname) == connection.here;
}

// Calls visit(descriptor, ends) for each connected socket of this process.
template <class Visit>
void for_each_socket(Visit&& visit) {
  for (const std::string& name : names_in("/proc/thread-self/fd")) {
    const int socket = std::stoi(name);
    const std::optional<SocketAddress> there = name_of(socket, ::getpeername);
    if (!there) continue;
    if (const std::optional<SocketAddress> here = name_of(socket, ::getsockname)) visit(socket, TcpEnds{*here, *there});
  }
}

// How long the connection has existed if nothing has ever arrived on it; none if something has, or it is none of TCP.
std::optional<std::chrono::milliseconds> silent_from_the_first(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  if (bytes < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return {};
  if (info.tcpi_bytes_received > 0) return {};
  return std::chrono::milliseconds(info.tcpi_last_data_recv);
}

}  // namespace

std::vector<int> find_tcp_sockets(std::span<const TcpEnds> connections) {
  std::vector<int> found(connections.size(), -1);
  for_each_socket([&](int socket, const TcpEnds& ends) {
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (connections[i] == ends) found[i] = socket;
    }
  });
  return found;
}

std::size_t end_silent_sockets(const SocketAddress& listener, std::chrono::milliseconds limit) {
  constexpr std::size_t kMany = 64;
  std::vector<std::pair<int, std::chrono::milliseconds>> silent;
  for_each_socket([&](int socket, const TcpEnds& ends) {
    if (ends.here.port != listener.port || ends.here.family != listener.family) return;
    if (const auto age = silent_from_the_first(socket)) silent.emplace_back(socket, *age);
  });
  if (silent.size() > kMany) limit = Timing::kShortestSilence;
  std::erase_if(silent, [&](const auto& each) { return each.second < limit; });
  for (const auto& [socket, age] : silent) ::shutdown(socket, SHUT_RDWR);
  return silent.size();
}

std::optional<TcpState> tcp_state(int socket, const TcpEnds& connection) {
  if (socket < 0 || !is_at(socket, connection)) return {};
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
