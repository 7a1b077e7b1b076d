// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/statistics.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::statistics_test {

namespace {

std::uint64_t total(const Statistics& statistics) {
  std::uint64_t sum = 0;
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      sum += statistics.counter(static_cast<RouteKind>(route), static_cast<Counted>(what)).count.load();
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("statistics that are switched off count nothing") {
  Statistics statistics;
  CHECK_FALSE(statistics.enabled());
  statistics.add(RouteKind::kMapped, Counted::kPut, 8);
  CHECK(total(statistics) == 0);
}

TEST_CASE("each route and operation has its own counter of operations and bytes") {
  Statistics statistics;
  statistics.enable();
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      statistics.add(static_cast<RouteKind>(route), static_cast<Counted>(what), 10 * route + what);
      statistics.add(static_cast<RouteKind>(route), static_cast<Counted>(what), 1);
    }
  }
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const auto& counter = statistics.counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      CHECK(counter.count.load() == 2);
      CHECK(counter.bytes.load() == 10 * route + what + 1);
    }
  }
}

TEST_CASE("counts of several threads add up") {
  Statistics statistics;
  statistics.enable();
  constexpr int kThreads = 4;
  constexpr int kTimes = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) statistics.add(RouteKind::kFabric, Counted::kHandler, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(statistics.counter(RouteKind::kFabric, Counted::kHandler).count.load() == kThreads * kTimes);
  CHECK(statistics.counter(RouteKind::kFabric, Counted::kHandler).bytes.load() == 3 * kThreads * kTimes);
  CHECK(total(statistics) == kThreads * kTimes);
}

TEST_CASE("routes and counted operations have distinct names") {
  std::set<std::string> routes;
  for (const RouteInfo& route : kRoutes) routes.insert(route.name);
  CHECK(routes.size() == kRouteKinds);
  CHECK(std::set<std::string>(kCountedNames.begin(), kCountedNames.end()).size() == kCountedNames.size());
  CHECK(info(RouteKind::kFabric).name == std::string("fabric"));
  CHECK(kCountedNames[static_cast<std::size_t>(Counted::kHandler)] == std::string("handler"));
}

}  // namespace farside::statistics_test
