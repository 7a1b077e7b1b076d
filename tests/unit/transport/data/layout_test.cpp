// SPDX-License-Identifier: BSD-3-Clause
// Layouts and the cursors over them, and sums and products at the ends of their types. (tests/fuzz/layout.cpp compares
// random layouts with an expansion into elements.)
#include "transport/data/layout.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/integers.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::layout_test {

namespace {

using LayoutPtr = std::shared_ptr<const Layout>;

std::vector<Layout::Run> runs_of(const Layout& layout, std::size_t count) {
  std::vector<Layout::Run> runs;
  RunCursor cursor(layout, count);
  Layout::Run run;
  while (cursor.next(run)) runs.push_back(run);
  return runs;
}

std::size_t fragments_of(const Layout& origin, std::size_t origin_count, const Layout& target,
                         std::size_t target_count) {
  ByteFragments fragments(origin, origin_count, target, target_count);
  Fragment fragment;
  std::size_t count = 0;
  while (fragments.next(fragment)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a basic layout has the size and bounds of its type") {
  for (std::size_t index = 0; index < kBasicTypes; ++index) {
    const auto type = static_cast<BasicType>(index);
    const LayoutPtr layout = Layout::basic(type);
    CHECK(layout->size() == traits(type).size);
    CHECK(layout->extent() == traits(type).extent);
    CHECK(layout->uniform_type() == type);
    CHECK(layout->elements() == 1);
    CHECK(layout->contiguous() == !has_gap(type));
  }
  CHECK(Layout::basic(BasicType::kDoubleInt)->true_upper_bound() == 12);
  CHECK(Layout::basic(BasicType::kShortInt)->true_upper_bound() == 8);
}

TEST_CASE("adjacent elements are one run, however they were put together") {
  const LayoutPtr number = Layout::basic(BasicType::kDouble);
  const LayoutPtr row = Layout::repeated(number, 10, 8);
  const LayoutPtr matrix = Layout::repeated(row, 5, 80);
  const LayoutPtr indexed = Layout::placed({{0, 3, number}, {24, 7, number}, {80, 40, number}});
  const LayoutPtr deep = Layout::placed({{0, 1, Layout::resized(matrix, 0, 400)}});
  for (const LayoutPtr& layout : {matrix, indexed, deep}) {
    CHECK(layout->contiguous());
    const std::vector<Layout::Run> runs = runs_of(*layout, 3);
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].count == 150);
    CHECK(runs[0].type == BasicType::kDouble);
  }
  CHECK(runs_of(*Layout::repeated(row, 5, 88), 1).size() == 5);
}

TEST_CASE("a struct without holes moves as one piece, whatever its types") {
  const LayoutPtr record =
      Layout::placed({{0, 1, Layout::basic(BasicType::kDouble)}, {8, 2, Layout::basic(BasicType::kInt32)}});
  CHECK(record->contiguous());
  CHECK_FALSE(record->uniform_type().has_value());
  CHECK(fragments_of(*record, 100, *Layout::basic(BasicType::kByte), 1600) == 1);
  const LayoutPtr padded = Layout::resized(record, 0, 24);
  CHECK_FALSE(padded->contiguous());
  CHECK(fragments_of(*padded, 100, *padded, 100) == 100);
}

TEST_CASE("bytes in another order than memory's are not contiguous") {
  const LayoutPtr number = Layout::basic(BasicType::kInt32);
  CHECK_FALSE(Layout::placed({{4, 1, number}, {0, 1, number}})->contiguous());
  CHECK_FALSE(Layout::repeated(number, 2, -4)->contiguous());
  CHECK_FALSE(Layout::placed({{4, 1, number}})->contiguous());
}

TEST_CASE("empty layouts have no runs and do not count as a type") {
  const LayoutPtr number = Layout::basic(BasicType::kInt32);
  const LayoutPtr none = Layout::repeated(number, 0, 4);
  const LayoutPtr spread = Layout::resized(none, -8, 100);
  for (const LayoutPtr& layout : {none, spread, Layout::placed({}), Layout::repeated(spread, 3, 7)}) {
    CHECK(layout->size() == 0);
    CHECK(layout->true_upper_bound() == 0);
    CHECK_FALSE(layout->uniform_type().has_value());
    CHECK_FALSE(layout->contiguous());
    CHECK(runs_of(*layout, 5).empty());
  }
  CHECK(spread->extent() == 100);
  const LayoutPtr mixed = Layout::placed({{0, 1, none}, {8, 1, number}});
  CHECK(mixed->uniform_type() == BasicType::kInt32);
  CHECK(mixed->lower_bound() == 8);
  CHECK(runs_of(*number, 0).empty());
}

TEST_CASE("bytes are counted up to the largest object, and no further") {
  CHECK(bytes_of(0, 0) == 0U);
  CHECK(bytes_of(3, 8) == 24U);
  CHECK(bytes_of(0, std::numeric_limits<std::size_t>::max()) == 0U);
  CHECK(bytes_of(1, kMostBytes) == kMostBytes);
  CHECK(!bytes_of(1, kMostBytes + 1));
  CHECK(!bytes_of((std::size_t{1} << 61) + 1, 8));               // 8 in 64 bits
  CHECK(!bytes_of(std::size_t{1} << 30, std::size_t{1} << 34));  // 0 in 64 bits
  CHECK(!bytes_of(std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()));
}

TEST_CASE("an offset is narrowed, or throws") {
  constexpr std::ptrdiff_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
  constexpr std::ptrdiff_t kLeast = std::numeric_limits<std::ptrdiff_t>::min();
  CHECK(narrow(Wide{kMost - 1} + 1) == kMost);
  CHECK(narrow(Wide{-3} * 5 - 1) == -16);
  CHECK_THROWS_AS(narrow(Wide{kMost} + 1), std::overflow_error);
  CHECK_THROWS_AS(narrow(Wide{kLeast} - 1), std::overflow_error);
  CHECK_THROWS_AS(narrow(Wide{kLeast} * -1), std::overflow_error);
}

TEST_CASE("a layout whose size or bounds no offset tells is not made") {
  const auto page = Layout::repeated(Layout::basic(BasicType::kByte), std::size_t{1} << 34, 1);
  CHECK(Layout::repeated(page, (std::size_t{1} << 29) - 1, page->extent())->size() ==
        (std::size_t{1} << 63) - (std::size_t{1} << 34));
  CHECK_THROWS_AS(Layout::repeated(page, std::size_t{1} << 30, page->extent()),
                  std::overflow_error);                                                   // 0 bytes in 64 bits
  CHECK_THROWS_AS(Layout::repeated(page, std::size_t{1} << 30, 0), std::overflow_error);  // within few bytes
  CHECK_THROWS_AS(Layout::repeated(page, 3, std::ptrdiff_t{1} << 62), std::overflow_error);
  CHECK_THROWS_AS(Layout::repeated(page, 3, std::numeric_limits<std::ptrdiff_t>::min() / 2), std::overflow_error);
  CHECK_THROWS_AS(Layout::placed({{std::numeric_limits<std::ptrdiff_t>::max() - 1, 1, page}}), std::overflow_error);
  CHECK_THROWS_AS(Layout::placed({{0, std::size_t{1} << 30, page}}), std::overflow_error);
  CHECK_THROWS_AS(Layout::placed({{0, 1, page}, {-std::numeric_limits<std::ptrdiff_t>::max(), 1, page}}),
                  std::overflow_error);
}

}  // namespace farside::layout_test
