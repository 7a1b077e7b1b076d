// SPDX-License-Identifier: BSD-3-Clause
// Lists whose elements stay in their places, and the index by which ranks are found in them.
#include "transport/base/growing_array.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <climits>

#include "tests/support/seeds.hpp"

namespace farside::growing_array_test {

TEST_CASE("elements of a stable list keep their values and their places while others are added") {
  StableList<std::size_t, 4> list;
  CHECK(list.size() == 0);
  std::vector<const std::size_t*> places;
  for (std::size_t i = 0; i < 1'000; ++i) {
    std::size_t& added = list.add();
    REQUIRE(added == 0);
    added = i;
    places.push_back(&added);
    REQUIRE(list.size() == i + 1);
  }
  for (std::size_t i = 0; i < 1'000; ++i) REQUIRE((&list[i] == places[i] && list[i] == i));
}

TEST_CASE("threads read the elements of a stable list that they know of while another one adds more") {
  constexpr std::size_t kAdded = 20'000;
  StableList<std::size_t> list;
  std::atomic<std::size_t> known{0};
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (std::size_t seen = 0; seen < kAdded;) {
        seen = known.load(std::memory_order_acquire);
        if (seen > 0 && (list[seen - 1] != seen || list[seen / 2] != seen / 2 + 1)) ++wrong;
      }
    });
  }
  for (std::size_t i = 0; i < kAdded; ++i) {
    list.add() = i + 1;
    known.store(i + 1, std::memory_order_release);
  }
  for (std::thread& each : readers) each.join();
  CHECK(wrong == 0);
}

TEST_CASE("an index of ranks finds what was added, and nothing else, in little memory") {
  std::vector<int> ranks;
  const auto rank_of = [&](int number) { return ranks[static_cast<std::size_t>(number)]; };
  CHECK(RankIndex().find(0, rank_of) == -1);
  CHECK(RankIndex().bytes() == 0);
  for (const std::uint32_t seed : testing::many_seeds(50)) {
    INFO(testing::named(seed));
    std::mt19937 random(seed);
    RankIndex index;
    std::map<int, int> model;
    // Everywhere, close together, or at a distance that is a power of two.
    const std::uint32_t distance = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 1U << 16 : 7919;
    const auto any = [&] { return static_cast<int>(random() % 10'000 * distance % (std::uint64_t{1} << 31)); };
    ranks.clear();
    const auto add = [&](int rank) {
      model[rank] = static_cast<int>(ranks.size());
      ranks.push_back(rank);
      index.add(rank_of);
    };
    add(0);
    add(INT_MAX);
    for (int i = 0; i < 2000; ++i) {
      const int rank = any();
      if (!model.contains(rank)) add(rank);
      const int other = any();
      const auto found = model.find(other);
      REQUIRE(index.find(other, rank_of) == (found == model.end() ? -1 : found->second));
      REQUIRE(index.bytes() <= 64 + 22 * model.size());
    }
    for (const auto& [rank, number] : model) REQUIRE(index.find(rank, rank_of) == number);
  }
}

TEST_CASE("an index finds the ranks of a large job") {
  constexpr int kRanks = 100'000;
  const auto rank_of = [](int number) { return 3 * number; };
  RankIndex index;
  for (int number = 0; number < kRanks; ++number) {
    index.add(rank_of);
    REQUIRE(index.bytes() <= 64 + 22 * static_cast<std::size_t>(number + 1));
  }
  for (int number = 0; number < kRanks; ++number) {
    REQUIRE(index.find(3 * number, rank_of) == number);
    REQUIRE(index.find(3 * number + 1, rank_of) == -1);
  }
}

}  // namespace farside::growing_array_test
