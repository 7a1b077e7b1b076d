// SPDX-License-Identifier: BSD-3-Clause
// combine_rows(): the result is that of separate calls of combine() for the rows, and bytes between the rows stay
// unchanged.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/data/elements.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::combine_rows_test {

using namespace farside::testing;

namespace {

constexpr std::byte kBetween{0x5A};

// Rows in a buffer. With a negative stride the first row is at the end. The seed 0 leaves the rows unfilled.
struct RowBuffer {
  RowBuffer(BasicType type, std::size_t count, std::size_t rows, std::ptrdiff_t apart, unsigned seed)
      : row_bytes(count * traits(type).extent),
        bytes((rows - 1) * static_cast<std::size_t>(std::abs(apart)) + row_bytes, kBetween),
        first(apart < 0 ? (rows - 1) * static_cast<std::size_t>(-apart) : 0),
        stride(apart) {
    for (std::size_t row = 0; seed != 0 && row < rows; ++row)
      fill_elements(type, at(row), count, seed + static_cast<unsigned>(row));
  }
  std::byte* at(std::size_t row) { return bytes.data() + first + static_cast<std::ptrdiff_t>(row) * stride; }

  std::size_t row_bytes;
  std::vector<std::byte> bytes;
  std::size_t first;
  std::ptrdiff_t stride;
};

bool same(BasicType type, RowBuffer& one, RowBuffer& other, std::size_t count, std::size_t rows) {
  bool equal = true;
  for (std::size_t row = 0; row < rows; ++row) {
    equal = equal && same_elements(type, one.at(row), other.at(row), count);
    std::fill_n(one.at(row), one.row_bytes, kBetween);
    std::fill_n(other.at(row), other.row_bytes, kBetween);
  }
  return equal && one.bytes == other.bytes;
}

}  // namespace

TEST_CASE("rows are combined as each by itself, with every operation on every type") {
  struct Shape {
    std::size_t count, rows;
    double target, origin, fetched;  // strides in rows; below one the rows overlap
  };
  constexpr Shape kShapes[] = {{1, 1, 3, 1, 1},   {1, 700, 3, 1, 1}, {2, 300, 1.5, 2, 3}, {1, 300, -2, 1, -1},
                               {3, 90, 1, -4, 2}, {1, 50, 0, 1, 1},  {4, 20, 0.5, 1, 1},  {100, 5, 2, 1, 1}};
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (!allowed(op, type)) continue;
      for (const Shape& shape : kShapes) {
        for (const bool fetch : {false, true}) {
          if (op == ReduceOp::kNoOp && !fetch) continue;
          INFO(traits(type).name << " " << name(op) << " " << shape.rows << " x " << shape.count << " at "
                                 << shape.target << " fetch " << fetch);
          const auto stride = [&](double rows) {
            const auto elements = static_cast<std::ptrdiff_t>(rows * static_cast<double>(shape.count));
            return elements * static_cast<std::ptrdiff_t>(traits(type).extent);
          };
          const RowStrides strides{stride(shape.target), stride(shape.origin), stride(shape.fetched)};
          RowBuffer target(type, shape.count, shape.rows, strides.target, 1), model = target;
          RowBuffer origin(type, shape.count, shape.rows, strides.origin, 1000);
          RowBuffer back(type, shape.count, shape.rows, strides.fetched, 0), model_back = back;
          const bool sends = op != ReduceOp::kNoOp;
          for (std::size_t row = 0; row < shape.rows; ++row) {
            combine(AtomicMethod::kLocked, op, type, model.at(row), sends ? origin.at(row) : nullptr,
                    fetch ? model_back.at(row) : nullptr, shape.count);
          }
          combine_rows(op, type, target.at(0), sends ? origin.at(0) : nullptr, fetch ? back.at(0) : nullptr,
                       shape.count, shape.rows, strides);
          REQUIRE(same(type, target, model, shape.count, shape.rows));
          REQUIRE(same(type, back, model_back, shape.count, shape.rows));
        }
      }
    }
  }
}

}  // namespace farside::combine_rows_test
