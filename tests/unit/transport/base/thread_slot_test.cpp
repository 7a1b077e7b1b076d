// SPDX-License-Identifier: BSD-3-Clause
// Numbers of threads: different while the threads live, and given back when they end.
#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/threads.hpp"

namespace farside::thread_slot_test {

namespace {

// The numbers of so many threads that live at the same time.
std::vector<int> numbers_of(std::size_t count) {
  std::vector<int> numbers(count);
  std::barrier all(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (int& number : numbers) {
    threads.emplace_back([&] {
      number = ThreadSlot::get();
      all.arrive_and_wait();
      if (ThreadSlot::get() != number) number = -1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

TEST_CASE("threads that live at the same time have different numbers, and those beyond the last have a common one") {
  // The calling thread has one of the numbers.
  const int own = ThreadSlot::get();
  REQUIRE(own < kOwnSlots);
  std::vector<int> expected;
  for (int number = 0; number < kOwnSlots; ++number) {
    if (number != own) expected.push_back(number);
  }
  CHECK(numbers_of(kOwnSlots - 1) == expected);
  // The threads of the line above have ended.
  expected.insert(expected.end(), 2, kOwnSlots);
  CHECK(numbers_of(kOwnSlots + 1) == expected);
}

}  // namespace farside::thread_slot_test
