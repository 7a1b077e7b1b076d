// SPDX-License-Identifier: BSD-3-Clause
// RankIndex: a sparse map from ranks to small numbers, by open addressing. Not thread-safe. Cost: O(1). Memory: 8 bytes
// per entry, and at most four times as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farside {

class RankIndex {
 public:
  // Returns the number of the rank, or -1.
  int find(int rank) const {
    if (entries_.empty()) return -1;
    for (std::size_t at = hash(rank);; at = (at + 1) & (entries_.size() - 1)) {
      if (entries_[at].rank == rank) return entries_[at].number;
      if (entries_[at].rank == kNone) return -1;
    }
  }
  // Precondition: the rank is not in the map. `number` is not negative.
  void add(int rank, int number) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    insert({rank, number});
    ++count_;
  }
  std::size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  static constexpr int kNone = -1;
  struct Entry {
    std::int32_t rank = kNone;
    std::int32_t number = 0;
  };
  std::size_t hash(int rank) const {
    return (static_cast<std::uint32_t>(rank) * std::uint64_t{0x9e3779b97f4a7c15}) >> shift_;
  }
  void insert(const Entry& entry) {
    std::size_t at = hash(entry.rank);
    while (entries_[at].rank != kNone) at = (at + 1) & (entries_.size() - 1);
    entries_[at] = entry;
  }
  void grow() {
    std::vector<Entry> before(entries_.empty() ? 8 : 2 * entries_.size());
    before.swap(entries_);
    shift_ = 64;
    for (std::size_t size = entries_.size(); size > 1; size /= 2) --shift_;
    for (const Entry& entry : before) {
      if (entry.rank != kNone) insert(entry);
    }
  }

  std::vector<Entry> entries_;  // a power of two, at most half full
  std::size_t count_ = 0;
  int shift_ = 64;
};

}  // namespace farside
