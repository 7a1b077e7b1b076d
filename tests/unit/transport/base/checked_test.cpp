// SPDX-License-Identifier: BSD-3-Clause
// Sums and products at the ends of their types, and datatypes that are too large for their offsets.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include <catch2/catch.hpp>

#include "transport/base/integers.hpp"
#include "transport/data/layout.hpp"

namespace farside::checked_test {

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

}  // namespace farside::checked_test
