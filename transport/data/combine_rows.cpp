// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdlib>

#include "transport/data/layout.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside {
namespace {

constexpr std::size_t kTogether = 2048;  // bytes
constexpr std::size_t kShort = 256;      // bytes; longer rows are fast without a copy

struct alignas(64) Together : std::array<std::byte, kTogether> {};

}  // namespace

void combine_rows(ReduceOp op, BasicType type, std::byte* target, const std::byte* origin, std::byte* fetched,
                  std::size_t count, std::size_t rows, const RowStrides& strides) {
  const std::size_t bytes = count * traits(type).extent;
  const auto dense = static_cast<std::ptrdiff_t>(bytes);
  // Rows of the target that overlap are combined one by one.
  const bool apart = std::abs(strides.target) >= dense;
  const std::size_t most = bytes > kShort || has_gap(type) || !apart ? 1 : kTogether / bytes;
  while (rows > 0) {
    const std::size_t part = std::min(rows, most);
    if (part == 1) {
      combine(AtomicMethod::kLocked, op, type, target, origin, fetched, count);
    } else {
      Together there, here, back;
      copy_ranges(there.data(), dense, target, strides.target, bytes, part);
      if (origin != nullptr) copy_ranges(here.data(), dense, origin, strides.origin, bytes, part);
      combine(AtomicMethod::kLocked, op, type, there.data(), origin != nullptr ? here.data() : nullptr,
              fetched != nullptr ? back.data() : nullptr, part * count);
      if (op != ReduceOp::kNoOp) copy_ranges(target, strides.target, there.data(), dense, bytes, part);
      if (fetched != nullptr) copy_ranges(fetched, strides.fetched, back.data(), dense, bytes, part);
    }
    const auto on = static_cast<std::ptrdiff_t>(part);
    target += on * strides.target;
    if (origin != nullptr) origin += on * strides.origin;
    if (fetched != nullptr) fetched += on * strides.fetched;
    rows -= part;
  }
}

}  // namespace farside
