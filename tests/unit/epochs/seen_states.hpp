// SPDX-License-Identifier: BSD-3-Clause
// The visited states of a search, as an open hash table that holds tens of millions of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace farside::explore {

// States by hash, with the depth of the last visit and whether the end can be reached from there.
class SeenStates {
 public:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t depth = 0;
    bool ends = false;
  };
  // Returns the entry, and whether it is new.
  std::pair<Entry*, bool> insert(std::uint64_t hash) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    Entry& entry = find(hash);
    if (entry.hash == hash) return {&entry, false};
    entry.hash = hash;
    ++count_;
    return {&entry, true};
  }
  Entry& find(std::uint64_t hash) {
    std::size_t at = hash & (entries_.size() - 1);
    while (entries_[at].hash != 0 && entries_[at].hash != hash) at = (at + 1) & (entries_.size() - 1);
    return entries_[at];
  }
  std::uint64_t size() const { return count_; }
  template <class F>
  void each(F&& visit) {
    for (Entry& entry : entries_) {
      if (entry.hash != 0) visit(entry);
    }
  }
  void clear() {
    entries_.assign(1024, Entry{});
    count_ = 0;
  }

 private:
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.hash != 0) find(entry.hash) = entry;
    }
  }
  std::vector<Entry> entries_ = std::vector<Entry>(1024);
  std::uint64_t count_ = 0;
};

}  // namespace farside::explore
