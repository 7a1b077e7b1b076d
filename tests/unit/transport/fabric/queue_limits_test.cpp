// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "transport/fabric/messages.hpp"

namespace farside::queue_limits_test {

TEST_CASE("over an adapter there is a buffer for each message that peers may have under way, up to a limit") {
  constexpr QueueLimits limits = queue_limits(true);
  for (const std::size_t peers : {0, 1, 16, 252}) {
    INFO(peers << " peers");
    // Requests of the peers, and replies to this process's own ones.
    CHECK(limits.receives(peers) >= 2 * limits.requests_per_peer * peers + limits.first_receives);
  }
  CHECK(limits.receives(253) == limits.most_receives);
  CHECK(limits.receives(100'000) == limits.most_receives);
}

TEST_CASE("over TCP the buffers are few, and nothing else is limited") {
  constexpr QueueLimits limits = queue_limits(false);
  CHECK(limits.receives(0) == 4);
  CHECK(limits.receives(1000) == 32);
  CHECK(limits.completions == 0);
  CHECK(limits.answers == QueueLimits::kNone);
  CHECK(limits.requests_per_peer == QueueLimits::kNone);
}

}  // namespace farside::queue_limits_test
