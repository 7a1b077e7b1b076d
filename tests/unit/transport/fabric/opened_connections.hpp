// SPDX-License-Identifier: BSD-3-Clause
// Connections over TCP without an endpoint. They make progress only in calls of the test.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <catch2/catch.hpp>

#include "transport/fabric/connections.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::testing {

// The object Connections without the rest of an endpoint.
struct Opened {
  Peers peers;
  FabricDomain domain = std::move(FabricDomain::open(std::move(find_provider("tcp").value()), 0).value());
  std::unique_ptr<Connections> connections;

  explicit Opened(Connections::Opening opening = {}) {
    connections = std::make_unique<Connections>(domain, peers, std::move(opening));
    REQUIRE(connections->listen(0).ok());
  }
  Connections* operator->() { return connections.get(); }
  ssize_t reach(PeerState& peer) {
    fid_ep* endpoint = nullptr;
    return connections->reach(peer, endpoint);
  }
};

// Makes progress until `done` returns true, for at most ten seconds. Returns the last result of `done`.
template <class Done>
bool soon(Opened& opened, Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  bool is = false;
  while (!(is = done()) && std::chrono::steady_clock::now() < end) {
    opened->progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return is;
}

// Returns the number of sockets of this process.
inline std::size_t open_sockets() {
  std::size_t sockets = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
    sockets += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:") ? 1U : 0U;
  }
  return sockets;
}

}  // namespace farside::testing
