// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/races/strided_run.hpp"

#include <algorithm>

namespace farside::epochs {

std::optional<ByteRange> overlap(const StridedRun& a, const StridedRun& b) {
  if (a.count > b.count) return overlap(b, a);
  for (std::uint64_t i = 0; i < a.count; ++i) {
    const ByteRange mine = a.block(i);
    // The first block of the other run that ends behind the start of this block.
    std::uint64_t k = 0;
    if (mine.first >= b.first + b.bytes) {
      if (b.count == 1) continue;
      k = (mine.first - b.first - b.bytes) / b.stride + 1;
      if (k >= b.count) continue;
    }
    const ByteRange theirs = b.block(k);
    if (theirs.first < mine.last)
      return ByteRange{std::max(mine.first, theirs.first), std::min(mine.last, theirs.last)};
  }
  return std::nullopt;
}

void RunBuilder::add(ByteRange range) {
  const std::uint64_t bytes = range.last - range.first;
  if (bytes == 0) return;
  if (!runs_.empty()) {
    StridedRun& run = runs_.back();
    const ByteRange end = run.block(run.count - 1);
    if (run.count == 1 && range.first == end.last) {
      run.bytes += bytes;
      return;
    }
    if (bytes == run.bytes && range.first >= end.last) {
      const std::uint64_t distance = range.first - end.first;
      if (run.count == 1) run.stride = distance;
      if (run.stride == distance) {
        ++run.count;
        return;
      }
    }
  }
  runs_.push_back({range.first, bytes, 0, 1});
}

}  // namespace farside::epochs
