// SPDX-License-Identifier: BSD-3-Clause
// Connections over TCP by themselves, which make progress when the test calls for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/fabric/connections.hpp"
#include "transport/fabric/domain.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::testing {

// Connections without the rest of an endpoint.
struct Opened {
  FabricDomain domain = std::move(FabricDomain::open(std::move(find_provider("tcp").value()), 0).value());
  std::unique_ptr<Connections> connections;

  explicit Opened(Connections::Opening opening = {}) {
    const auto lost = [](Peer, const std::string&, bool) {};
    connections = std::move(Connections::open(domain, 0, lost, nullptr, std::move(opening)).value());
  }
  Connections* operator->() { return connections.get(); }
  ssize_t reach(Peer peer) {
    fid_ep* endpoint = nullptr;
    return connections->reach(peer, endpoint);
  }
};

// What `done` says within ten seconds, while connections make progress.
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

// Sockets that this process has.
inline std::size_t open_sockets() {
  std::size_t sockets = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
    sockets += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:") ? 1U : 0U;
  }
  return sockets;
}

}  // namespace farside::testing
