// SPDX-License-Identifier: BSD-3-Clause
// Layouts of random trees. Each method that walks their data must visit the same places as a plain list of all
// elements, which is built together with the tree.
//
//   input:  how many copies, then the tree: a kind, its numbers, its children
#include "transport/data/layout.hpp"

#include <algorithm>
#include <memory>

#include "tests/fuzz/fuzz.hpp"

namespace farside::fuzz {
namespace {

struct Element {
  std::ptrdiff_t offset;
  BasicType type;
  bool operator==(const Element&) const = default;
};
using Map = std::vector<Element>;

// A layout, and beside it the type map as MPI defines it (MPI 4.0 section 5.1): all elements in their order, and the
// bounds.
struct Both {
  std::shared_ptr<const Layout> layout;
  Map map;
  std::ptrdiff_t lower = 0, upper = 0;
  // Without data there are no bounds. This rule is farside's own, since MPI's bounds come from the runtime.
  bool nothing() const { return map.empty() && lower == upper; }
  std::ptrdiff_t extent() const { return upper - lower; }
};

constexpr std::size_t kMostElements = 2000;

void add(Map& to, const Map& map, std::ptrdiff_t offset) {
  for (const Element& element : map) to.push_back({element.offset + offset, element.type});
}

// Widens the bounds to those of `child` at an offset.
void cover(Both& parent, const Both& child, std::ptrdiff_t offset) {
  if (child.nothing()) return;
  const bool first = parent.nothing();
  parent.lower = first ? child.lower + offset : std::min(parent.lower, child.lower + offset);
  parent.upper = first ? child.upper + offset : std::max(parent.upper, child.upper + offset);
}

std::ptrdiff_t number(Reader& input) { return static_cast<std::int8_t>(input.byte()); }

Both make(Reader& input, int depth) {
  Both both;
  const unsigned kind = depth == 0 || input.empty() ? 0 : input.byte() % 4;
  if (kind == 1) {
    const Both child = make(input, depth - 1);
    std::size_t count = input.byte() % 9;
    if (child.map.size() * count > kMostElements) count = 1;
    std::ptrdiff_t stride = number(input);
    if (input.byte() % 2 == 0) stride = child.extent();
    both.layout = Layout::repeated(child.layout, count, stride);
    for (std::size_t i = 0; i < count; ++i) {
      cover(both, child, static_cast<std::ptrdiff_t>(i) * stride);
      add(both.map, child.map, static_cast<std::ptrdiff_t>(i) * stride);
    }
  } else if (kind == 2) {
    std::vector<Layout::Placed> children;
    for (unsigned left = input.byte() % 4; left > 0; --left) {
      const Both child = make(input, depth - 1);
      const std::ptrdiff_t offset = number(input) * (input.byte() % 2 == 0 ? 1 : 16);
      std::size_t count = input.byte() % 5;
      if (both.map.size() + child.map.size() * count > kMostElements) count = 0;
      children.push_back({offset, count, child.layout});
      for (std::size_t i = 0; i < count; ++i) {
        const std::ptrdiff_t at = offset + static_cast<std::ptrdiff_t>(i) * child.extent();
        cover(both, child, at);
        add(both.map, child.map, at);
      }
    }
    both.layout = Layout::placed(std::move(children));
  } else if (kind == 3) {
    const Both child = make(input, depth - 1);
    both.lower = number(input);
    const std::ptrdiff_t extent = number(input);
    // If there are bounds but no data, only bounds that a datatype can have.
    both.upper = both.lower + (child.map.empty() ? std::abs(extent) : extent);
    both.layout = Layout::resized(child.layout, both.lower, both.extent());
    both.map = child.map;
  } else {
    const auto type = static_cast<BasicType>(input.byte() % kBasicTypes);
    both.layout = Layout::basic(type);
    both.map = {{0, type}};
    both.upper = traits(type).extent;
  }
  if (both.nothing()) both.lower = both.upper = 0;
  return both;
}

// Where the bytes of an element's data lie: not those of its gap.
void add_bytes(std::vector<std::ptrdiff_t>& to, const Element& element) {
  const BasicTypeTraits& of = traits(element.type);
  for (std::ptrdiff_t b = 0; b < of.first; ++b) to.push_back(element.offset + b);
  for (std::ptrdiff_t b = 0; b < of.size - of.first; ++b) to.push_back(element.offset + of.second + b);
}

std::vector<std::ptrdiff_t> bytes_of(const Map& map) {
  std::vector<std::ptrdiff_t> bytes;
  for (const Element& element : map) add_bytes(bytes, element);
  return bytes;
}

Map walked(const Layout& layout, std::size_t copies, RunCursor::Unit unit) {
  Map map;
  RunCursor cursor(layout, copies, unit);
  for (Layout::Run run; cursor.next(run);) {
    require(run.count > 0, "a run has elements");
    for (std::size_t i = 0; i < run.count; ++i)
      map.push_back({run.offset + static_cast<std::ptrdiff_t>(i * traits(run.type).extent), run.type});
  }
  return map;
}

void check_fragments(const Layout& origin, std::size_t copies, const Layout& target, std::size_t target_copies,
                     const std::vector<std::ptrdiff_t>& from, const std::vector<std::ptrdiff_t>& to) {
  std::size_t at = 0;
  ByteFragments fragments(origin, copies, target, target_copies);
  for (Fragment fragment; fragments.next(fragment); at += fragment.count) {
    require(fragment.count > 0 && fragment.count <= from.size() - at, "pieces are those of the data");
    for (std::size_t b = 0; b < fragment.count; ++b) {
      require(from[at + b] == fragment.origin_offset + static_cast<std::ptrdiff_t>(b),
              "a piece is where the origin has it");
      require(to[at + b] == fragment.target_offset + static_cast<std::ptrdiff_t>(b),
              "a piece is where the target has it");
    }
  }
  require(at == from.size(), "all is moved");
}

// The same of elements, of one type on both sides.
void check_elements(const Layout& origin, std::size_t copies, const Layout& target, std::size_t target_copies,
                    const Map& from, const Map& to) {
  std::size_t at = 0;
  ElementFragments fragments(origin, copies, target, target_copies);
  for (Fragment fragment; fragments.next(fragment);) {
    require(fragment.count > 0 && fragment.count <= from.size() - at, "pieces are those of the data");
    for (std::size_t i = 0; i < fragment.count; ++i, ++at) {
      const auto inside = static_cast<std::ptrdiff_t>(i * traits(from[at].type).extent);
      require(from[at].offset == fragment.origin_offset + inside && to[at].offset == fragment.target_offset + inside,
              "an element is where both sides have it");
    }
  }
  require(at == from.size(), "all elements are paired");
}

void add_run(std::vector<std::ptrdiff_t>& to, std::ptrdiff_t at, std::size_t bytes, std::size_t count,
             std::ptrdiff_t stride) {
  for (std::size_t c = 0; c < count; ++c)
    for (std::size_t b = 0; b < bytes; ++b)
      to.push_back(at + static_cast<std::ptrdiff_t>(c) * stride + static_cast<std::ptrdiff_t>(b));
}

std::vector<std::ptrdiff_t> bytes_of(const Ranges& ranges) {
  std::vector<std::ptrdiff_t> bytes;
  for (std::size_t o = 0; o < ranges.outer; ++o)
    add_run(bytes, ranges.offset + static_cast<std::ptrdiff_t>(o) * ranges.outer_stride, ranges.bytes, ranges.count,
            ranges.stride);
  return bytes;
}

void check_pairs(const Ranges& target, const Ranges& origin) {
  std::vector<std::ptrdiff_t> there, here;
  const bool fit = for_ranges(target, origin,
                              [&](std::ptrdiff_t to, std::ptrdiff_t to_stride, std::ptrdiff_t from,
                                  std::ptrdiff_t from_stride, std::size_t bytes, std::size_t count) {
                                add_run(there, to, bytes, count, to_stride);
                                add_run(here, from, bytes, count, from_stride);
                              });
  require(!fit || (there == bytes_of(target) && here == bytes_of(origin)), "pairs of ranges pair the n-th bytes");
}

Bytes seed(std::initializer_list<int> numbers) {
  Bytes bytes;
  for (const int n : numbers) bytes.push_back(static_cast<std::uint8_t>(n));
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  return {
      seed({3, 0, 3}),                                                              // three int64
      seed({2, 1, 0, 9, 5, 24, 1}),                                                 // a vector of doubles
      seed({2, 1, 1, 0, 2, 4, 12, 1, 3, 100, 1}),                                   // a plane
      seed({1, 2, 3, 0, 22, 0, 0, 1, 0, 2, 16, 0, 2, 1, 0, 0, 3, 7, 1, 40, 0, 1}),  // a struct with a pair and a vector
      seed({2, 3, 1, 0, 2, 3, 8, 1, -4, 40}),                                       // resized
      seed({4, 1, 3, 0, 10, -8, 48, 3, -48, 1}),                                    // backwards
      seed({2, 1, 2, 2, 0, 5, 0, 0, 1, 0, 0, 4, 0, 1, 3, 16, 1, 3, 9, 0, 3, 32, 1}),
  };
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside;
  using namespace farside::fuzz;
  Reader input(data, size);
  const std::size_t copies = input.byte() % 5;
  const Both both = make(input, 5);
  const Layout& layout = *both.layout;

  std::size_t bytes_of_one = 0;
  for (const Element& element : both.map) bytes_of_one += traits(element.type).size;
  require(layout.size() == bytes_of_one && layout.elements() == both.map.size(),
          "size and elements are those of the map");
  require(both.nothing() || (layout.lower_bound() == both.lower && layout.extent() == both.extent()),
          "bounds are those of the map");
  const bool uniform =
      !both.map.empty() && std::ranges::all_of(both.map, [&](const Element& e) { return e.type == both.map[0].type; });
  require(layout.uniform_type().has_value() == uniform && (!uniform || *layout.uniform_type() == both.map[0].type),
          "one type or several");
  const std::vector<std::ptrdiff_t> one = bytes_of(both.map);
  if (!one.empty()) {
    require(layout.true_lower_bound() == *std::ranges::min_element(one), "true lower bound");
    const std::ptrdiff_t last = *std::ranges::max_element(one) + 1;
    require(layout.true_upper_bound() >= last, "true upper bound");
  }

  Map map;
  for (std::size_t c = 0; c < copies; ++c) add(map, both.map, static_cast<std::ptrdiff_t>(c) * layout.extent());
  const std::vector<std::ptrdiff_t> bytes = bytes_of(map);
  require(walked(layout, copies, RunCursor::Unit::kElements) == map, "elements are walked in their order");
  require(bytes_of(walked(layout, copies, RunCursor::Unit::kBytes)) == bytes, "bytes are walked in their order");
  if (layout.contiguous()) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      require(bytes[i] == static_cast<std::ptrdiff_t>(i), "contiguous is without gaps");
  }
  if (const std::optional<Ranges> ranges = layout.ranges(copies)) {
    require(bytes_of(*ranges) == bytes, "ranges are the bytes in their order");
    // Origins: contiguous, of the same shape, and of rows with gaps.
    const auto row = static_cast<std::ptrdiff_t>(ranges->bytes);
    check_pairs(*ranges, {100, bytes.size(), 1, 0, 1, 0});
    check_pairs(*ranges, *ranges);
    check_pairs(*ranges, {-40, ranges->bytes, ranges->count * ranges->outer, 3 * row, 1, 0});
  }
  std::vector<std::ptrdiff_t> dense(bytes.size());
  for (std::size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<std::ptrdiff_t>(i);
  const auto packed = Layout::basic(BasicType::kByte);
  check_fragments(layout, copies, *packed, bytes.size(), bytes, dense);
  check_fragments(*packed, bytes.size(), layout, copies, dense, bytes);
  if (copies > 0)
    check_fragments(layout, copies, *Layout::repeated(both.layout, copies, layout.extent()), 1, bytes, bytes);
  if (uniform) {
    Map elements;
    const BasicType type = both.map[0].type;
    for (std::size_t i = 0; i < map.size(); ++i)
      elements.push_back({static_cast<std::ptrdiff_t>(i * traits(type).extent), type});
    check_elements(layout, copies, *Layout::basic(type), map.size(), map, elements);
    check_elements(*Layout::basic(type), map.size(), layout, copies, elements, map);
  }
  return 0;
}
