// SPDX-License-Identifier: BSD-3-Clause
// Layouts and the cursors over them, compared with a naive expansion into single elements.
#include "transport/data/layout.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::layout_test {

using farside::testing::many_seeds;
using farside::testing::named;

namespace {

using LayoutPtr = std::shared_ptr<const Layout>;

struct Item {
  std::ptrdiff_t offset;
  BasicType type;
  bool operator==(const Item&) const = default;
};

// A layout and its expected meaning: its single elements and its bounds.
struct Expanded {
  LayoutPtr layout;
  std::vector<Item> items;
  std::ptrdiff_t lower = 0;
  std::ptrdiff_t upper = 0;
};

std::ptrdiff_t signed_count(std::size_t count) { return static_cast<std::ptrdiff_t>(count); }

Expanded expand_basic(BasicType type) { return {Layout::basic(type), {{0, type}}, 0, traits(type).extent}; }

// Adds a copy of a child to the items, and to the bounds if the child has any.
void add_copy(Expanded& to, const Expanded& child, std::ptrdiff_t offset, bool& any) {
  for (const Item& item : child.items) to.items.push_back({item.offset + offset, item.type});
  if (child.items.empty() && child.lower == child.upper) return;
  to.lower = any ? std::min(to.lower, child.lower + offset) : child.lower + offset;
  to.upper = any ? std::max(to.upper, child.upper + offset) : child.upper + offset;
  any = true;
}

Expanded expand_repeated(const Expanded& child, std::size_t count, std::ptrdiff_t stride) {
  Expanded result{Layout::repeated(child.layout, count, stride), {}, 0, 0};
  bool any = false;
  for (std::size_t copy = 0; copy < count; ++copy) add_copy(result, child, signed_count(copy) * stride, any);
  return result;
}

struct Place {
  std::ptrdiff_t offset;
  std::size_t count;
  Expanded child;
};

Expanded expand_placed(const std::vector<Place>& places) {
  Expanded result;
  std::vector<Layout::Placed> children;
  bool any = false;
  for (const Place& place : places) {
    children.push_back({place.offset, place.count, place.child.layout});
    const std::ptrdiff_t extent = place.child.upper - place.child.lower;
    for (std::size_t copy = 0; copy < place.count; ++copy) {
      add_copy(result, place.child, place.offset + signed_count(copy) * extent, any);
    }
  }
  result.layout = Layout::placed(std::move(children));
  return result;
}

Expanded expand_resized(const Expanded& child, std::ptrdiff_t lower, std::ptrdiff_t extent) {
  return {Layout::resized(child.layout, lower, extent), child.items, lower, lower + extent};
}

class RandomLayouts {
 public:
  explicit RandomLayouts(unsigned seed) : random_(seed) {}

  std::ptrdiff_t below(std::ptrdiff_t limit) { return static_cast<std::ptrdiff_t>(random_()) % limit; }
  std::size_t count_below(std::ptrdiff_t limit) { return static_cast<std::size_t>(below(limit)); }

  // With `only`, all leaves have that type.
  Expanded make(int depth, std::optional<BasicType> only) {
    if (depth == 0) return expand_basic(only ? *only : static_cast<BasicType>(below(signed_count(kBasicTypes))));
    switch (below(6)) {
      case 0: {  // contiguous, or a vector with touching blocks
        const Expanded child = make(depth - 1, only);
        return expand_repeated(child, count_below(4), child.upper - child.lower);
      }
      case 1: return expand_repeated(make(depth - 1, only), count_below(4), below(200) - 100);
      case 2: return expand_resized(make(depth - 1, only), below(64) - 32, below(96));
      case 3: {  // indexed: one child, some blocks adjacent
        const Expanded child = make(depth - 1, only);
        std::vector<Place> places;
        std::ptrdiff_t offset = below(50);
        for (std::ptrdiff_t blocks = below(4); blocks > 0; --blocks) {
          places.push_back({offset, count_below(4), child});
          offset += signed_count(places.back().count) * (child.upper - child.lower) + (below(2) ? below(64) - 32 : 0);
        }
        return expand_placed(places);
      }
      default: {
        std::vector<Place> places;
        std::ptrdiff_t offset = 0;
        for (std::ptrdiff_t fields = below(4); fields > 0; --fields) {
          places.push_back({offset, count_below(3), make(static_cast<int>(below(depth)), only)});
          offset = below(2) ? places.back().child.upper : below(200) - 100;
        }
        return expand_placed(places);
      }
    }
  }

 private:
  std::mt19937 random_;
};

std::vector<Item> naive_items(const Expanded& expanded, std::size_t count) {
  std::vector<Item> items;
  for (std::size_t copy = 0; copy < count; ++copy) {
    for (const Item& item : expanded.items) {
      items.push_back({item.offset + signed_count(copy) * (expanded.upper - expanded.lower), item.type});
    }
  }
  return items;
}

// Returns the offset of each byte of data, in type-map order.
std::vector<std::ptrdiff_t> naive_bytes(const Expanded& expanded, std::size_t count) {
  std::vector<std::ptrdiff_t> bytes;
  for (const Item& item : naive_items(expanded, count)) {
    const BasicTypeTraits& known = traits(item.type);
    for (std::ptrdiff_t byte = 0; byte < known.first; ++byte) bytes.push_back(item.offset + byte);
    for (std::ptrdiff_t byte = 0; byte < known.size - known.first; ++byte) {
      bytes.push_back(item.offset + known.second + byte);
    }
  }
  return bytes;
}

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
  ByteFragment fragment;
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

TEST_CASE("the runs of random layouts are the elements of the type map in its order") {
  std::size_t missed = 0;
  for (const std::uint32_t seed : many_seeds(3000)) {
    INFO(named(seed));
    RandomLayouts random(seed);
    const Expanded expanded = random.make(static_cast<int>(random.below(9)), {});
    const Layout& layout = *expanded.layout;
    const std::size_t count = random.count_below(4);
    std::vector<Item> found;
    for (const Layout::Run& run : runs_of(layout, count)) {
      REQUIRE(run.count > 0);
      for (std::size_t index = 0; index < run.count; ++index) {
        found.push_back({run.offset + signed_count(index * traits(run.type).extent), run.type});
      }
    }
    REQUIRE(found == naive_items(expanded, count));
    REQUIRE(layout.lower_bound() == expanded.lower);
    REQUIRE(layout.extent() == expanded.upper - expanded.lower);
    REQUIRE(layout.elements() == expanded.items.size());

    const std::vector<std::ptrdiff_t> bytes = naive_bytes(expanded, 1);
    REQUIRE(layout.size() == bytes.size());
    if (!bytes.empty()) {
      REQUIRE(layout.true_lower_bound() == *std::min_element(bytes.begin(), bytes.end()));
      REQUIRE(layout.true_upper_bound() == *std::max_element(bytes.begin(), bytes.end()) + 1);
    }
    const bool uniform = std::all_of(expanded.items.begin(), expanded.items.end(),
                                     [&](const Item& item) { return item.type == expanded.items[0].type; });
    REQUIRE(layout.uniform_type().has_value() == (uniform && !expanded.items.empty()));
    const std::vector<std::ptrdiff_t> two = naive_bytes(expanded, 2);
    bool in_order = !two.empty();
    for (std::size_t byte = 0; byte < two.size(); ++byte) in_order = in_order && two[byte] == signed_count(byte);
    // contiguous() may miss a layout that is dense by chance (FARSIDE_TEST_SEED=2425155473).
    REQUIRE((in_order || !layout.contiguous()));
    missed += in_order && !layout.contiguous() ? 1 : 0;
  }
  CHECK(missed <= 3);
}

TEST_CASE("pieces of two random layouts pair the n-th byte of one with the n-th of the other") {
  for (const std::uint32_t seed : many_seeds(2000)) {
    INFO(named(seed));
    RandomLayouts random(seed);
    const Expanded origin = random.make(static_cast<int>(random.below(6)), {});
    const Expanded target = random.make(static_cast<int>(random.below(6)), {});
    const std::vector<std::ptrdiff_t> origin_bytes = naive_bytes(origin, 3);
    const std::vector<std::ptrdiff_t> target_bytes = naive_bytes(target, 2);
    ByteFragments fragments(*origin.layout, 3, *target.layout, 2);
    ByteFragment fragment;
    std::size_t at = 0;
    while (fragments.next(fragment)) {
      REQUIRE(fragment.bytes > 0);
      for (std::size_t byte = 0; byte < fragment.bytes; ++byte, ++at) {
        REQUIRE(at < std::min(origin_bytes.size(), target_bytes.size()));
        REQUIRE(origin_bytes[at] == fragment.origin_offset + signed_count(byte));
        REQUIRE(target_bytes[at] == fragment.target_offset + signed_count(byte));
      }
    }
    REQUIRE(at == std::min(origin_bytes.size(), target_bytes.size()));
  }
}

TEST_CASE(
    "ranges, where a random layout has them, are its bytes in their order, and pairs of them pair the n-th bytes") {
  std::size_t simple = 0, paired = 0, nested = 0;
  for (const std::uint32_t seed : many_seeds(20000)) {
    INFO(named(seed));
    RandomLayouts random(seed);
    const Expanded target = random.make(static_cast<int>(random.below(4)), {});
    const std::size_t copies = random.count_below(4);
    const std::optional<Ranges> ranges = target.layout->ranges(copies);
    if (!ranges) continue;
    ++simple;
    nested += ranges->outer > 1 ? 1 : 0;
    const std::vector<std::ptrdiff_t> bytes = naive_bytes(target, copies);
    std::vector<std::ptrdiff_t> found;
    for (std::size_t outer = 0; outer < ranges->outer; ++outer) {
      for (std::size_t i = 0; i < ranges->count; ++i) {
        for (std::size_t byte = 0; byte < ranges->bytes; ++byte) {
          found.push_back(ranges->offset + signed_count(outer) * ranges->outer_stride +
                          signed_count(i) * ranges->stride + signed_count(byte));
        }
      }
    }
    REQUIRE(found == bytes);
    // Origins: contiguous, with the same shape, and with other shapes.
    const Ranges flat{100, bytes.size(), 1, 0, 1, 0};
    const Ranges rows{-40, ranges->bytes, ranges->count * ranges->outer, 3 * signed_count(ranges->bytes), 1, 0};
    const std::optional<Ranges> other = random.make(2, {}).layout->ranges(1);
    for (const Ranges& origin : {flat, *ranges, rows, other.value_or(flat)}) {
      std::vector<std::ptrdiff_t> there, here;
      const bool fit = for_ranges(*ranges, origin,
                                  [&](std::ptrdiff_t to, std::ptrdiff_t to_stride, std::ptrdiff_t from,
                                      std::ptrdiff_t from_stride, std::size_t size, std::size_t count) {
                                    for (std::size_t i = 0; i < count; ++i) {
                                      for (std::size_t byte = 0; byte < size; ++byte) {
                                        there.push_back(to + signed_count(i) * to_stride + signed_count(byte));
                                        here.push_back(from + signed_count(i) * from_stride + signed_count(byte));
                                      }
                                    }
                                  });
      if (!fit) continue;
      ++paired;
      REQUIRE(there == bytes);
      std::size_t at = 0;
      for (std::size_t outer = 0; outer < origin.outer; ++outer) {
        for (std::size_t i = 0; i < origin.count; ++i) {
          for (std::size_t byte = 0; byte < origin.bytes; ++byte, ++at) {
            REQUIRE(here[at] == origin.offset + signed_count(outer) * origin.outer_stride +
                                    signed_count(i) * origin.stride + signed_count(byte));
          }
        }
      }
      REQUIRE(at == here.size());
    }
  }
  if (farside::testing::one_seed_is_given()) return;
  CHECK(simple > 5000);
  CHECK(nested > 200);
  CHECK(paired > 3 * simple - simple / 10);
}

TEST_CASE("element pieces of two random layouts of one type pair the n-th elements") {
  for (const std::uint32_t seed : many_seeds(2000)) {
    INFO(named(seed));
    RandomLayouts random(seed);
    const auto type = static_cast<BasicType>(random.below(signed_count(kBasicTypes)));
    const Expanded origin = random.make(static_cast<int>(random.below(6)), type);
    const Expanded target = random.make(static_cast<int>(random.below(6)), type);
    const std::vector<Item> origin_items = naive_items(origin, 2);
    const std::vector<Item> target_items = naive_items(target, 3);
    ElementFragments fragments(*origin.layout, 2, *target.layout, 3);
    ElementFragment fragment;
    std::size_t at = 0;
    while (fragments.next(fragment)) {
      REQUIRE(fragment.count > 0);
      for (std::size_t index = 0; index < fragment.count; ++index, ++at) {
        REQUIRE(at < std::min(origin_items.size(), target_items.size()));
        const std::ptrdiff_t inside = signed_count(index * traits(type).extent);
        REQUIRE(origin_items[at].offset == fragment.origin_offset + inside);
        REQUIRE(target_items[at].offset == fragment.target_offset + inside);
      }
    }
    REQUIRE(at == std::min(origin_items.size(), target_items.size()));
  }
}

}  // namespace farside::layout_test
