// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/tcp_path.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/unique_fd.hpp"

namespace farside {
namespace {

using std::chrono::milliseconds;

sockaddr_storage place(const char* machine, std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, machine, &v4.sin_addr) == 1);
  sockaddr_storage any{};
  std::memcpy(&any, &v4, sizeof v4);
  return any;
}

FabricAddress address(const char* machine, std::uint16_t port) {
  const sockaddr_storage any = place(machine, port);
  FabricAddress out;
  out.size = sizeof(sockaddr_in);
  std::memcpy(out.bytes.data(), &any, out.size);
  return out;
}

TEST_CASE("a peer's machine is silent when all connections to it are, and one of them asks") {
  const FabricAddress own = address("10.0.0.1", 4000), peer = address("10.0.0.2", 5000);
  const auto made_here = [&](bool unanswered, int silent) {
    return TcpConnection{place("10.0.0.1", 41000), place("10.0.0.2", 5000), unanswered, milliseconds(silent)};
  };
  const auto made_there = [&](bool unanswered, int silent) {
    return TcpConnection{place("10.0.0.1", 4000), place("10.0.0.2", 42000), unanswered, milliseconds(silent)};
  };
  CHECK(!silent_while_asked({}, own, peer));
  CHECK(!silent_while_asked({made_here(false, 9000)}, own, peer));
  CHECK(silent_while_asked({made_here(true, 9000)}, own, peer) == milliseconds(9000));
  CHECK(silent_while_asked({made_there(true, 8000), made_here(false, 9000)}, own, peer) == milliseconds(8000));
  CHECK(silent_while_asked({made_there(false, 10), made_here(true, 9000)}, own, peer) == milliseconds(10));
}

TEST_CASE("connections of other processes say nothing about a peer") {
  const FabricAddress own = address("10.0.0.1", 4000), peer = address("10.0.0.2", 5000);
  // Other ports of both machines; the same ports with another machine; no address that is one of TCP's.
  CHECK(!silent_while_asked({{place("10.0.0.1", 41000), place("10.0.0.2", 5001), true, milliseconds(9)}}, own, peer));
  CHECK(!silent_while_asked({{place("10.0.0.1", 4000), place("10.0.0.3", 5000), true, milliseconds(9)}}, own, peer));
  CHECK(!silent_while_asked({{place("10.0.0.1", 41000), place("10.0.0.2", 5000), true, milliseconds(9)}}, own,
                            FabricAddress{}));
}

TEST_CASE("a connection whose reader has no room, but whose machine is there, is not silent") {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage at = place("127.0.0.1", 0);
  socklen_t bytes = sizeof(sockaddr_in);
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
  FabricAddress peer;
  peer.size = bytes;
  std::memcpy(peer.bytes.data(), &at, bytes);
  const UniqueFd writer(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  connect(writer.get(), reinterpret_cast<sockaddr*>(&at), bytes);
  const UniqueFd reader(accept(listener.get(), nullptr, nullptr));
  REQUIRE(reader.valid());
  // Until the reader, which reads nothing, has had no room for a while.
  const std::vector<char> data(1 << 20);
  for (pollfd each{writer.get(), POLLOUT, 0}; poll(&each, 1, 1000) > 0;) {
    if (write(writer.get(), data.data(), data.size()) <= 0) break;
  }
  const auto connections = tcp_connections();
  const auto is_ours = [&](const TcpConnection& each) { return std::memcmp(&each.there, &at, bytes) == 0; };
  REQUIRE(std::count_if(connections.begin(), connections.end(), is_ours) == 1);
  const auto silent = silent_while_asked(connections, address("127.0.0.1", 1), peer);
  CHECK((!silent || *silent < milliseconds(1000)));
}

}  // namespace
}  // namespace farside
