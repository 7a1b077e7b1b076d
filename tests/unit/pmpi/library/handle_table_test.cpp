// SPDX-License-Identifier: BSD-3-Clause
// The table from handles to windows: its answers, the entries read per look-up, and concurrent threads.
#include "pmpi/library/handle_table.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using farside::pmpi::HandleTable;

namespace {

using Table = HandleTable<const int>;
using Key = Table::Key;

// Handles as the runtimes make them: MPICH's are consecutive numbers, Open MPI's are equidistant addresses of heap
// memory.
struct Pattern {
  const char* name;
  Key first, distance;
  Key operator()(std::size_t i) const { return first + i * distance; }
};
constexpr Pattern kPatterns[] = {{"numbers", 0xa0000000, 1},
                                 {"blocks of 64", 0x55d0c0de1000, 64},
                                 {"blocks of 0x1c0", 0x55d0c0de1010, 0x1c0},
                                 {"blocks of 544", 0x7f12340012a0, 544},
                                 {"pages", 0x7f1234000000, 4096},
                                 {"huge pages", 0x7f1200000000, 2 << 20}};

// A table is never destroyed, so the tests do not destroy theirs either.
Table& make_table() {
  static std::vector<Table*> tables;
  return *tables.emplace_back(new Table);
}

// The entries that look-ups of the handles from `begin` to `end` read.
struct Probes {
  double mean;
  std::size_t most;
};
Probes probes(const Table& table, const Pattern& pattern, std::size_t begin, std::size_t end) {
  std::size_t sum = 0, most = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t each = table.probes(pattern(i));
    sum += each;
    most = std::max(most, each);
  }
  return {static_cast<double>(sum) / static_cast<double>(end - begin), most};
}

}  // namespace

TEST_CASE("A handle leads to its object until that is taken out") {
  Table& table = make_table();
  static const int one = 1, two = 2;
  CHECK(table.find(7) == nullptr);
  CHECK_FALSE(table.look_up(7).taken_out);
  table.insert(7, &one);
  table.insert(8, &two);
  CHECK(table.find(7) == &one);
  CHECK(table.find(8) == &two);
  table.take_out(7, &one);
  CHECK(table.find(7) == nullptr);
  CHECK(table.look_up(7).taken_out);
  CHECK_FALSE(table.look_up(8).taken_out);
  CHECK_FALSE(table.look_up(9).taken_out);

  SECTION("and leads to a newer one when it comes back") {
    table.insert(7, &two);
    CHECK(table.find(7) == &two);
    CHECK_FALSE(table.look_up(7).taken_out);
    // A late take_out() of the older object changes nothing.
    table.take_out(7, &one);
    CHECK(table.find(7) == &two);
  }
  SECTION("and belongs to somebody else once it was forgotten") {
    table.forget(7);
    CHECK(table.find(7) == nullptr);
    CHECK_FALSE(table.look_up(7).taken_out);
    // take_out() after the table has forgotten the handle.
    table.take_out(7, &one);
    CHECK_FALSE(table.look_up(7).taken_out);
    table.forget(99);
    CHECK(table.find(99) == nullptr);
  }
}

TEST_CASE("Hidden objects are looked up, but not found") {
  Table& table = make_table();
  static const int one = 1;
  table.insert(7, &one);
  table.hide();
  for (Key key = 8; key < 200; ++key) table.insert(key, &one);  // the table grows
  for (Key key = 7; key < 200; ++key) {
    REQUIRE(table.find(key) == nullptr);
    REQUIRE(table.look_up(key).value == &one);
  }
}

TEST_CASE("A look-up reads few entries, known handle or not, whatever was inserted before") {
  static const int object = 0;
  for (const Pattern& pattern : kPatterns) {
    CAPTURE(pattern.name);
    Table& table = make_table();
    constexpr std::size_t kHandles = 20000;
    for (std::size_t i = 0; i < kHandles; ++i) {
      table.insert(pattern(i), &object);
      if (i % 64 != 0) continue;
      const Probes unknown = probes(table, pattern, kHandles, kHandles + 1000);
      CAPTURE(i, unknown.mean, unknown.most);
      REQUIRE(unknown.mean <= 4);
      REQUIRE(unknown.most <= 16);
    }
    for (std::size_t i = 0; i < kHandles; ++i) table.take_out(pattern(i), &object);
    const Probes freed = probes(table, pattern, 0, kHandles);
    const Probes unknown = probes(table, pattern, kHandles, 2 * kHandles);
    CAPTURE(freed.mean, freed.most, unknown.mean, unknown.most);
    CHECK(freed.mean <= 4);
    CHECK(freed.most <= 16);
    CHECK(unknown.mean <= 4);
    CHECK(unknown.most <= 16);
    for (std::size_t i = 0; i < kHandles; ++i) REQUIRE(table.look_up(pattern(i)).taken_out);
    for (std::size_t i = kHandles; i < 2 * kHandles; ++i) REQUIRE_FALSE(table.look_up(pattern(i)).taken_out);
  }
}

TEST_CASE("Handles that come and go for ever leave a look-up as it was") {
  Table& table = make_table();
  static const int object = 0;
  const Pattern& pattern = kPatterns[0];
  for (std::size_t round = 0; round < 200; ++round) {
    for (std::size_t i = 0; i < 1000; ++i) table.insert(pattern(i), &object);
    for (std::size_t i = 0; i < 1000; ++i) table.take_out(pattern(i), &object);
    for (std::size_t i = round % 7; i < 1000; i += 7) table.forget(pattern(i));
  }
  const Probes all = probes(table, pattern, 0, 100000);
  CAPTURE(all.mean, all.most);
  CHECK(all.mean <= 4);
  CHECK(all.most <= 16);
}

TEST_CASE("Threads look handles up while others come and go") {
  Table& table = make_table();
  static const int lasting = 1, passing = 2;
  const Pattern& pattern = kPatterns[2];
  constexpr std::size_t kLasting = 50;
  for (std::size_t i = 0; i < kLasting; ++i) table.insert(pattern(i), &lasting);
  std::atomic<bool> over{false};
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
        for (std::size_t at = 0; at < kLasting; ++at) wrong += table.find(pattern(at)) != &lasting;
        wrong += table.find(pattern(1000000)) != nullptr;
        wrong += table.look_up(pattern(1000001)).taken_out;
      }
    });
  }
  for (std::size_t i = kLasting; i < 4000; ++i) {
    table.insert(pattern(i), &passing);
    if (i % 3 == 0) table.take_out(pattern(i), &passing);
    if (i % 6 == 0) table.forget(pattern(i));
  }
  over.store(true, std::memory_order_relaxed);
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong.load() == 0);
}
