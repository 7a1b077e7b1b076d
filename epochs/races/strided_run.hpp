// SPDX-License-Identifier: BSD-3-Clause
// The bytes that an operation names, in the common form of derived datatypes: equal blocks at equal distances. A
// column of a matrix is one run, whatever its length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epochs/races/access_kind.hpp"

namespace farside::epochs {

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
std::optional<ByteRange> overlap(const StridedRun& a, const StridedRun& b);

// Makes runs of ranges: successive ranges of one size at equal ascending distances become one run.
class RunBuilder {
 public:
  void add(ByteRange range);
  const std::vector<StridedRun>& runs() const { return runs_; }

 private:
  std::vector<StridedRun> runs_;
};

}  // namespace farside::epochs
