// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "tools/common/rank_files.hpp"

namespace farside::placement_test {

using namespace farside::tools;
using Catch::Matchers::Contains;

TEST_CASE("ranks that share cores are said, by their host") {
  Placement placement;
  for (int rank = 0; rank < 4; ++rank) placement.add("a", "0-1");
  for (int rank = 0; rank < 2; ++rank) placement.add("b", rank == 0 ? "0" : "1");
  REQUIRE(placement.oversubscribed().size() == 1);
  CHECK_THAT(placement.oversubscribed()[0], Contains("4 ranks share 2 cores on a: "));
  // Bound to the same core.
  Placement bound;
  bound.add("a", "3");
  bound.add("a", "3");
  REQUIRE(bound.oversubscribed().size() == 1);
  CHECK_THAT(bound.oversubscribed()[0], Contains("2 ranks share 1 core on a: "));
  // What is not known is not blamed.
  for (const char* unknown : {"", "3-1", "x", "0-99999999"}) {
    Placement doubtful = bound;
    doubtful.add("a", unknown);
    CHECK(doubtful.oversubscribed().empty());
  }
}

}  // namespace farside::placement_test
