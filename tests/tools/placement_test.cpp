// SPDX-License-Identifier: BSD-3-Clause
#include "tools/placement.hpp"

#include <catch2/catch.hpp>

using namespace farside::tools;
using Catch::Matchers::Contains;

TEST_CASE("lists of CPUs are those of the kernel") {
  CHECK(cpus_in("0-3,8") == std::set<int>{0, 1, 2, 3, 8});
  CHECK(cpus_in("5") == std::set<int>{5});
  for (const char* text : {"", "x", "3-1", "1-", "-1", "1,,2", "0-99999999", "0-40000,0-40000"})
    CHECK(cpus_in(text).empty());
}

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
  bound.add("a", "");
  CHECK(bound.oversubscribed().empty());
}
