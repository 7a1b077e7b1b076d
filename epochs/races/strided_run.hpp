// SPDX-License-Identifier: BSD-3-Clause
// Bytes that an operation names, in the form that derived datatypes mostly have: equal blocks at equal distances. A
// column of a matrix is one run, whatever its length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epochs/races/access_kind.hpp"

namespace farside::epochs {

// `count` blocks of `bytes` each, at first, first + stride, ...; stride >= bytes where there are several.
struct StridedRun {
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;
  std::uint64_t count = 1;

  // The block of this number.
  ByteRange block(std::uint64_t number) const {
    const std::uint64_t at = first + number * stride;
    return {at, at + bytes};
  }
};

// The first bytes that both have, in the order of the one with fewer blocks; as many steps as that one has blocks.
std::optional<ByteRange> meet(const StridedRun& a, const StridedRun& b);

// Makes runs of ranges that come in any order: ascending ones at equal distances become one.
class RunBuilder {
 public:
  void add(ByteRange range);
  const std::vector<StridedRun>& runs() const { return runs_; }

 private:
  std::vector<StridedRun> runs_;
};

}  // namespace farside::epochs
