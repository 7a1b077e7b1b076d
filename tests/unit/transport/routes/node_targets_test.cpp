// SPDX-License-Identifier: BSD-3-Clause
// Finding a rank among those of a node.
#include <algorithm>
#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <climits>

#include "tests/support/seeds.hpp"
#include "transport/routes/mapped/mapped_route.hpp"

namespace farside::node_targets_test {

using namespace farside::testing;

namespace {

NodeTargets targets_of(const std::vector<int>& ranks) {
  NodeTargets targets;
  targets.assign(ranks);
  for (const int rank : ranks) targets.find(rank)->unit = static_cast<std::uint32_t>(rank);
  return targets;
}

// Returns the ranks that are not found as they should be, in words.
std::string wrong_in(const std::vector<int>& ranks) {
  NodeTargets targets = targets_of(ranks);
  std::set<int> near;  // the ranks, and those around them
  for (const int rank : ranks) {
    for (const long extra : {-4096L, -3L, -2L, -1L, 0L, 1L, 2L, 3L, 4096L}) {
      const long at = rank + extra;
      if (at >= 0 && at <= INT_MAX) near.insert(static_cast<int>(at));
    }
  }
  for (const int rank : {0, 1, 1 << 30, INT_MAX - 1, INT_MAX}) near.insert(rank);
  std::string wrong;
  const ConsecutiveTargets consecutive(targets.consecutive());
  const bool gapless = static_cast<std::size_t>(ranks.back()) - static_cast<std::size_t>(ranks.front()) < ranks.size();
  for (const int rank : near) {
    const NodeTarget* const found = targets.find(rank);
    if (consecutive.contains(rank) != (gapless && found != nullptr) ||
        (consecutive.contains(rank) && &consecutive[rank] != found))
      wrong += std::to_string(rank) + " (consecutive) ";
    const auto at = std::ranges::find(ranks, rank);
    const bool right =
        at == ranks.end() ? found == nullptr : found == &targets.all()[static_cast<std::size_t>(at - ranks.begin())];
    if (!right || (found != nullptr && (found->rank != rank || found->unit != static_cast<std::uint32_t>(rank))))
      wrong += std::to_string(rank) + " ";
  }
  return wrong;
}

std::vector<int> row(int first, long distance, std::size_t count) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < count; ++i) ranks.push_back(static_cast<int>(first + distance * static_cast<long>(i)));
  return ranks;
}

}  // namespace

TEST_CASE("each rank of a node is found, and no other, however the ranks are placed") {
  CHECK(NodeTargets().find(0) == nullptr);
  for (const int first : {0, 1, 7, 1000}) {
    for (const long distance : {1L, 2L, 3L, 4L, 6L, 64L, 100L, 65535L, 1L << 20}) {
      INFO("from " << first << " in steps of " << distance);
      CHECK(wrong_in(row(first, distance, 40)).empty());
      CHECK(wrong_in(row(first, distance, 2)).empty());
    }
  }
  CHECK(wrong_in(row(INT_MAX - 63, 1, 64)).empty());
  CHECK(wrong_in(row(INT_MAX - 63 * 4, 4, 64)).empty());
  // One, two, and regular but for one.
  for (const std::vector<int>& ranks : {std::vector{0},
                                        {17},
                                        {INT_MAX},
                                        {0, 1 << 30},
                                        {0, INT_MAX},
                                        {INT_MAX - 1, INT_MAX},
                                        {0, 1, 2, 3, 5},
                                        {0, 2, 3, 4, 5},
                                        {0, 4, 8, 12, 13, 16},
                                        {3, 4, INT_MAX}})
    CHECK(wrong_in(ranks).empty());
}

TEST_CASE("each rank of a node is found, and no other, wherever the ranks happen to be") {
  for (const std::uint32_t seed : many_seeds(100)) {
    INFO(named(seed));
    std::mt19937 random(seed);
    std::set<int> ranks;
    const int within = 1 + static_cast<int>(random() % (seed % 2 == 0 ? 50 : INT_MAX));
    const std::size_t count = std::min<std::size_t>(1 + random() % 40, static_cast<std::size_t>(within));
    while (ranks.size() < count) ranks.insert(static_cast<int>(random() % static_cast<std::uint32_t>(within)));
    CHECK(wrong_in({ranks.begin(), ranks.end()}).empty());
  }
}

TEST_CASE("only a target that needs more has more, and its route follows from it") {
  NodeTargets targets = targets_of({4, 5, 6});
  CHECK(targets.extra(*targets.find(5)) == nullptr);
  std::byte data{};
  targets.find(4)->data = &data;
  targets.make_extra(*targets.find(5)).address = 4096;
  CHECK(targets.route(*targets.find(4)) == RouteKind::kMapped);
  CHECK(targets.route(*targets.find(5)) == RouteKind::kCma);
  CHECK(targets.route(*targets.find(6)) == RouteKind::kFabric);
  CHECK(&targets.make_extra(*targets.find(5)) == targets.extra(*targets.find(5)));
  CHECK(targets.extra(*targets.find(4)) == nullptr);
  targets.make_extra(*targets.find(6)).memory = &data;  // mapped, but not for operations
  CHECK(targets.route(*targets.find(6)) == RouteKind::kFabric);
}

}  // namespace farside::node_targets_test
