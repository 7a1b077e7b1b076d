// SPDX-License-Identifier: BSD-3-Clause
// Connections over TCP without an endpoint. They make progress only in calls of the test.
#pragma once

#include <memory>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
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

// The same, with progress of the connections.
template <class Done>
bool soon(Opened& opened, Done&& done) {
  return soon([&] {
    if (done()) return true;
    opened->progress();
    return false;
  });
}

}  // namespace farside::testing
