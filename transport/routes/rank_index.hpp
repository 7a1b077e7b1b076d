// SPDX-License-Identifier: BSD-3-Clause
// RankIndex: finds, by open addressing, the number of the element of a list that has a rank. The ranks are in the
// elements: `rank_of(number)` returns the rank of an element. Not thread-safe. Cost: O(1). Memory: 4 bytes per element,
// and at most 2.7 times as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farside {

class RankIndex {
 public:
  // Returns the number of the element of this rank, or -1.
  template <class RankOf>
  int find(int rank, RankOf&& rank_of) const {
    if (numbers_.empty()) return -1;
    for (std::size_t at = hash(rank);; at = next(at)) {
      if (numbers_[at] == kNone || rank_of(numbers_[at]) == rank) return numbers_[at];
    }
  }
  // Precondition: no element of the same rank was added. `number` is not negative.
  template <class RankOf>
  void add(int number, RankOf&& rank_of) {
    if (4 * (count_ + 1) > 3 * numbers_.size()) grow(rank_of);
    insert(number, rank_of(number));
    ++count_;
  }
  std::size_t bytes() const { return numbers_.capacity() * sizeof(numbers_.front()); }

 private:
  static constexpr std::int32_t kNone = -1;
  std::size_t hash(int rank) const {
    return (static_cast<std::uint32_t>(rank) * std::uint64_t{0x9e3779b97f4a7c15}) >> shift_;
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (numbers_.size() - 1); }
  void insert(std::int32_t number, int rank) {
    std::size_t at = hash(rank);
    while (numbers_[at] != kNone) at = next(at);
    numbers_[at] = number;
  }
  template <class RankOf>
  void grow(RankOf&& rank_of) {
    std::vector<std::int32_t> before(numbers_.empty() ? 8 : 2 * numbers_.size(), kNone);
    before.swap(numbers_);
    shift_ = 64;
    for (std::size_t size = numbers_.size(); size > 1; size /= 2) --shift_;
    for (const std::int32_t number : before) {
      if (number != kNone) insert(number, rank_of(number));
    }
  }

  std::vector<std::int32_t> numbers_;  // a power of two, at most three quarters full
  std::size_t count_ = 0;
  int shift_ = 64;
};

}  // namespace farside
