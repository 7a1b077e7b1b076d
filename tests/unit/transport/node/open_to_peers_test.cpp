// SPDX-License-Identifier: BSD-3-Clause
// The permission that Yama asks for: given when a peer needs it, once.
#include <catch2/catch.hpp>

#include "transport/node/process_memory.hpp"

namespace farside::open_to_peers_test {

namespace {

int scope = 0;
int given = 0;
const Yama kYama{[] { return scope; }, [] { ++given; }};

}  // namespace

TEST_CASE("where Yama asks for it, the permission is given once, when a peer needs it") {
  scope = 1;
  given = 0;
  PeerPermission permission(kYama);
  CHECK_FALSE(permission.needed());
  CHECK(given == 0);
  permission.need();
  permission.need();
  CHECK(permission.needed());
  CHECK(given == 1);
}

TEST_CASE("where Yama does not ask for it, or where it helps nothing, nothing is permitted") {
  for (const int other : {0, 2, 3}) {
    scope = other;
    given = 0;
    PeerPermission permission(kYama);
    permission.need();
    CHECK(given == 0);
  }
}

TEST_CASE("where Yama begins to ask for it later, the next need gives the permission") {
  scope = 0;
  given = 0;
  PeerPermission permission(kYama);
  permission.need();
  scope = 1;
  permission.need();
  CHECK(given == 1);
}

}  // namespace farside::open_to_peers_test
