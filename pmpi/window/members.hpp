// SPDX-License-Identifier: BSD-3-Clause
// The members of a group, as ranks of the window. Groups of start and post are mostly small and repeated, so up to 16
// ranks need no allocation, and the last group is cached. Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <mpi.h>

#include "pmpi/library/library.hpp"

namespace farside::pmpi {

class Members {
 public:
  Members() = default;
  explicit Members(std::size_t size) { resize(size); }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  void resize(std::size_t size) {
    if (size > kFew) many_.resize(size);
    ranks_ = size > kFew ? std::span<int>(many_) : std::span<int>(few_.data(), size);
  }
  std::span<int> ranks() const { return ranks_; }
  std::span<const int> copy(std::span<const int> from) {
    resize(from.size());
    std::copy(from.begin(), from.end(), ranks_.begin());
    return ranks_;
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::array<int, kFew> few_;
  std::vector<int> many_;
  std::span<int> ranks_;
};

// The last group that was translated. A handle names the same members until it is freed, and may then name others. The
// cache is therefore invalid after any group was freed.
class KnownGroup {
 public:
  bool is(MPI_Group group) const {
    return group == group_ && freed_ == library().groups_freed.load(std::memory_order_relaxed) &&
           group_ != MPI_GROUP_NULL;
  }
  void set(MPI_Group group, std::span<const int> members) {
    members_.copy(members);
    group_ = group;
    freed_ = library().groups_freed.load(std::memory_order_relaxed);
  }
  std::span<const int> members() const { return members_.ranks(); }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
  std::uint64_t freed_ = 0;
  Members members_;
};

}  // namespace farside::pmpi
