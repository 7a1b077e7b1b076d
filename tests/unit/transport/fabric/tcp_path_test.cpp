// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/files.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside::tcp_path_test {

namespace {

using std::chrono::milliseconds;

SocketAddress address(int family, const char* host, std::uint16_t port) {
  SocketAddress result;
  result.family = static_cast<std::uint16_t>(family);
  result.port = htons(port);
  REQUIRE(inet_pton(family, host, result.host.data()) == 1);
  return result;
}

// A connection to this process itself.
struct Pair {
  UniqueFd listener, writer, reader;
  TcpEnds written;  // as the writer has it

  explicit Pair(const char* host) : listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Sockaddr any = to_sockaddr(address(AF_INET, host, 0));
    sockaddr_storage at = any.any;
    auto bytes = static_cast<socklen_t>(any.bytes);
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
    written.there = socket_address(&at, bytes).value();
    writer = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    connect(writer.get(), reinterpret_cast<sockaddr*>(&at), bytes);
    reader = UniqueFd(accept(listener.get(), nullptr, nullptr));
    REQUIRE(reader.valid());
    REQUIRE(getsockname(writer.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
    written.here = socket_address(&at, bytes).value();
  }
};

}  // namespace

TEST_CASE("an address of IPv4 or IPv6 survives its short form, and others have none") {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(4000);
  v4.sin_addr.s_addr = htonl(0x0a000001);
  CHECK(socket_address(&v4, sizeof v4) == address(AF_INET, "10.0.0.1", 4000));
  const Sockaddr back4 = to_sockaddr(socket_address(&v4, sizeof v4).value());
  CHECK(back4.bytes == sizeof v4);
  CHECK(std::memcmp(&back4.any, &v4, sizeof v4) == 0);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(4000);
  v6.sin6_scope_id = 3;
  REQUIRE(inet_pton(AF_INET6, "fe80::1:2", &v6.sin6_addr) == 1);
  const Sockaddr back6 = to_sockaddr(socket_address(&v6, sizeof v6).value());
  CHECK(back6.bytes == sizeof v6);
  CHECK(std::memcmp(&back6.any, &v6, sizeof v6) == 0);
  // AF_IB is 27. A string, and a part of an address.
  sockaddr_storage other{};
  other.ss_family = 27;
  CHECK(!socket_address(&other, 48));
  CHECK(!socket_address("fi_ns://node", 12));
  CHECK(!socket_address(&v4, sizeof v4 - 1));
  CHECK(!socket_address(&v6, 1));
}

TEST_CASE("the descriptor of a connection is found among others by both of its ends") {
  const Pair one("127.0.0.1"), other("127.0.0.2");
  const TcpEnds reverse{one.written.there, one.written.here};
  TcpEnds none = one.written;
  none.here.port = other.written.here.port;
  const std::array sought{other.written, one.written, none, reverse};
  CHECK(find_tcp_sockets(sought) == std::vector{other.writer.get(), one.writer.get(), -1, one.reader.get()});
  CHECK(tcp_state(one.writer.get(), one.written));
  // A descriptor that belongs to something else by now.
  CHECK(!tcp_state(other.writer.get(), one.written));
  CHECK(!tcp_state(STDIN_FILENO, one.written));
  CHECK(!tcp_state(-1, one.written));
}

TEST_CASE("a connection that was ended is at its end on both sides, and no other is") {
  const Pair one("127.0.0.1"), other("127.0.0.1");
  CHECK(end_tcp_connection(one.written) == one.writer.get());
  char byte = 0;
  CHECK(recv(one.writer.get(), &byte, 1, MSG_DONTWAIT) == 0);
  CHECK(recv(one.reader.get(), &byte, 1, 0) == 0);
  CHECK(recv(other.writer.get(), &byte, 1, MSG_DONTWAIT) == -1);
  CHECK(send(other.writer.get(), &byte, 1, MSG_NOSIGNAL) == 1);
}

TEST_CASE("a connection whose reader has no room, but whose host is there, is not silent") {
  const Pair pair("127.0.0.1");
  // Until the reader, which reads nothing, has had no room for a while.
  const std::vector<char> data(1 << 20);
  for (pollfd each{pair.writer.get(), POLLOUT, 0}; poll(&each, 1, 1000) > 0;) {
    if (write(pair.writer.get(), data.data(), data.size()) <= 0) break;
  }
  const std::optional<TcpState> state = tcp_state(pair.writer.get(), pair.written);
  REQUIRE(state);
  CHECK((!state->unanswered || state->silent < milliseconds(1000)));
}

}  // namespace farside::tcp_path_test
