// SPDX-License-Identifier: BSD-3-Clause
// A peer that accepts TCP connections and sends nothing, so that a request to connect stays outstanding.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "transport/base/address.hpp"
#include "transport/base/files.hpp"
#include "transport/base/integers.hpp"

namespace farside::testing {

// Returns an address on this host. No known process has its identity.
inline FabricAddress any_address(std::uint16_t port) {
  FabricAddress address;
  address.socket.family = AF_INET;
  address.socket.host = {127, 0, 0, 1};
  address.socket.port = port;
  address.identity = random_bits();
  return address;
}

class SilentListener {
 public:
  // `backlog`: the host accepts one connection more than this, and does not answer further requests to connect.
  explicit SilentListener(int backlog = 8) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), bytes);
    listen(socket_.get(), backlog);
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &bytes);
    address_ = any_address(at.sin_port);
  }
  const FabricAddress& address() const { return address_; }
  // Returns whether a process connects.
  bool called() const {
    pollfd each{socket_.get(), POLLIN, 0};
    return poll(&each, 1, 0) > 0;
  }
  // Breaks the next connection. Precondition: called().
  void hang_up() {
    const UniqueFd connection(accept(socket_.get(), nullptr, nullptr));
    const linger at_once{1, 0};
    setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  UniqueFd socket_;
  FabricAddress address_;
};

}  // namespace farside::testing
