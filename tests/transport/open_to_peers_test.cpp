// SPDX-License-Identifier: BSD-3-Clause
// The permission that Yama asks for: given while somebody needs it, and then taken back.
#include "transport/node/open_to_peers.hpp"

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

using namespace farside;

namespace {

int scope = 0;
std::vector<bool> asked;
const Yama kYama{[] { return scope; }, [](bool any) { asked.push_back(any); }};

}  // namespace

TEST_CASE("where Yama asks for it, the permission is given once, and taken back with its last user") {
  scope = 1;
  asked.clear();
  PeerPermission permission(kYama);
  auto first = std::make_unique<OpenToPeers>(permission);
  auto second = std::make_unique<OpenToPeers>(permission);
  CHECK(permission.users() == 2);
  first.reset();
  CHECK(asked == std::vector<bool>{true});
  second.reset();
  CHECK(permission.users() == 0);
  CHECK(asked == std::vector<bool>{true, false});
  const OpenToPeers again(permission);
  CHECK(asked == std::vector<bool>{true, false, true});
}

TEST_CASE("where Yama does not ask for it, or where it helps nothing, nothing is permitted nor taken back") {
  for (const int other : {0, 2, 3}) {
    scope = other;
    asked.clear();
    PeerPermission permission(kYama);
    { const OpenToPeers open(permission); }
    CHECK(asked.empty());
  }
}

TEST_CASE("where Yama begins to ask for it later, the next user gives the permission") {
  scope = 0;
  asked.clear();
  PeerPermission permission(kYama);
  {
    const OpenToPeers before(permission);
    scope = 1;
    const OpenToPeers after(permission);
    CHECK(asked == std::vector<bool>{true});
    scope = 0;
  }
  CHECK(asked == std::vector<bool>{true, false});
}
