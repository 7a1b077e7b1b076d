// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/growing_array.hpp"

namespace farside::stable_list_test {

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

}  // namespace farside::stable_list_test
