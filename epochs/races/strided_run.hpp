// SPDX-License-Identifier: BSD-3-Clause
// The bytes that an operation names, in the common form of derived datatypes: equal blocks at equal distances. A
// column of a matrix is one run, whatever its length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace farside::epochs {

// The use of the bytes that an operation names.
enum class Use : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,  // likewise all other atomic updates
  kFetch,       // atomic read: MPI_NO_OP
};

struct AccessKind {
  Use use;
  int element;  // of atomic uses: equal if the two are atomic with respect to each other
};

// Whether two uses of the same bytes may overlap in time (MPI 4.0 section 12.7): reads may, and so may atomic uses of
// the same elements. A put overlaps with nothing.
constexpr bool may_overlap(AccessKind a, AccessKind b) {
  const auto reads = [](Use use) { return use == Use::kGet || use == Use::kFetch; };
  const auto is_atomic = [](Use use) { return use == Use::kAccumulate || use == Use::kFetch; };
  if (reads(a.use) && reads(b.use)) return true;
  return is_atomic(a.use) && is_atomic(b.use) && a.element == b.element;
}

// The bytes from `first` to below `last`.
struct ByteRange {
  std::uint64_t first;
  std::uint64_t last;
};

// `count` blocks of `bytes` each, at first, first + stride, and so on; stride >= bytes if count > 1.
struct StridedRun {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;
  std::uint64_t count = 1;

  // The bytes of the block with this number.
  ByteRange block(std::uint64_t number) const {
    const std::uint64_t at = first + number * stride;
    return {at, at + bytes};
  }
};

// The first bytes that both runs contain, in the order of the run with fewer blocks. Takes as many steps as that run
// has blocks.
inline std::optional<ByteRange> overlap(const StridedRun& a, const StridedRun& b) {
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

// Makes runs of ranges: successive ranges of one size at equal ascending distances become one run.
class RunBuilder {
 public:
  void add(ByteRange range) {
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
  const std::vector<StridedRun>& runs() const { return runs_; }

 private:
  std::vector<StridedRun> runs_;
};

}  // namespace farside::epochs
