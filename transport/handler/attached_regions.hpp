// SPDX-License-Identifier: BSD-3-Clause
// The regions that ranks attach to a dynamic space.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/handler/region_words.hpp"

namespace farside {

// The regions of one rank in a dynamic space: disjoint, non-empty ranges of its memory. The rank has such a table, and
// its peers have copies of it. Not thread-safe.

// Plain bytes: peers read the struct as it is in memory.
struct Region {
  std::uint64_t address = 0;  // in the process of its rank
  std::uint64_t bytes = 0;
  RemoteKey key;  // for the fabric, if the space uses it
  std::uint64_t end() const { return address + bytes; }
};
static_assert(sizeof(Region) == 32);

// In two lists, each sorted by address: a region that would move more than kMostMoved others in the long list goes to
// the short one, which is merged into the long one when it has as many. So an insertion costs about the same in a table
// of any length and in any order.
class RegionTable {
 public:
  static constexpr std::size_t kMostMoved = 1024;
  using List = std::vector<Region>;
  // Both lists, the long one first.
  using Lists = std::array<List, 2>;

  explicit RegionTable(std::size_t most_moved = kMostMoved) : most_moved_(most_moved) {}
  const Lists& lists() const { return lists_; }

  // Returns the region that holds the byte at `address`, or null.
  const Region* find(std::uint64_t address) const {
    for (const List& list : lists_) {
      const auto behind = std::ranges::upper_bound(list, address, {}, &Region::address);
      if (behind != list.begin() && address < std::prev(behind)->end()) return &*std::prev(behind);
    }
    return nullptr;
  }
  // Calls visit(regions) for each list with at most so many regions, those around `address`.
  template <class Visit>
  void around(std::uint64_t address, std::size_t most, Visit&& visit) const {
    const std::size_t recent = std::min(most / 2, lists_[1].size());
    for (const std::size_t i : {0, 1}) {
      const List& list = lists_[i];
      const auto behind = std::ranges::upper_bound(list, address, {}, &Region::address) - list.begin();
      const auto at = static_cast<std::size_t>(behind);
      const std::size_t count = i == 1 ? recent : std::min(most - recent, list.size());
      visit(std::span(list).subspan(std::min(at - std::min(at, count / 2), list.size() - count), count));
    }
  }
  // Returns whether all bytes are in regions. An access may extend over regions that adjoin each other.
  bool covers(std::uint64_t address, std::uint64_t bytes) const {
    while (bytes > 0) {
      const Region* region = find(address);
      if (region == nullptr) return false;
      const std::uint64_t part = std::min(bytes, region->end() - address);
      address += part;
      bytes -= part;
    }
    return true;
  }
  bool overlaps(std::uint64_t address, std::uint64_t bytes) const {
    return std::ranges::any_of(lists_, [&](const List& list) {
      const auto behind = std::ranges::lower_bound(list, address, {}, &Region::address);
      if (behind != list.end() && behind->address - address < bytes) return true;
      return behind != list.begin() && std::prev(behind)->end() > address;
    });
  }
  // If this throws std::bad_alloc, the table is unchanged.
  void insert(const Region& region) {
    auto& [all, recent] = lists_;
    const auto place = [&](List& list) { return std::ranges::upper_bound(list, region.address, {}, &Region::address); };
    if (const auto at = place(all); static_cast<std::size_t>(all.end() - at) <= most_moved_) {
      all.insert(at, region);
      return;
    }
    recent.reserve(most_moved_);
    if (recent.size() == most_moved_) {
      const auto before = static_cast<std::ptrdiff_t>(all.size());
      all.insert(all.end(), recent.begin(), recent.end());
      recent.clear();
      std::ranges::inplace_merge(all, all.begin() + before, {}, &Region::address);
    }
    recent.insert(place(recent), region);
  }
  // Returns false if no region begins at `address`.
  bool erase(std::uint64_t address) {
    for (List& list : lists_) {
      const auto found = std::ranges::lower_bound(list, address, {}, &Region::address);
      if (found == list.end() || found->address != address) continue;
      list.erase(found);
      return true;
    }
    return false;
  }

 private:
  std::size_t most_moved_;
  Lists lists_;
};

// The table of the regions that this rank has attached to a dynamic space. On-node peers read the table by
// process_vm_readv(2), guided by the RegionWords in this rank's segment. Other peers request parts of it from the
// handler. The table notes its readers, because a detach must notify them.
//
// Thread safety: any. No function issues a remote operation. Memory: 32 bytes per region, one bit per peer.
class AttachedRegions {
 public:
  AttachedRegions(RegionWords words, int ranks) : words_(words), ranks_(ranks) {}
  AttachedRegions(const AttachedRegions&) = delete;
  AttachedRegions& operator=(const AttachedRegions&) = delete;

  // Errors: kAttach. A region without bytes can be detached, but not accessed.
  Status attach(const Region& region);
  // Returns the peers to notify: the readers of the table that no earlier detach has returned. Errors: kAttach.
  Result<std::vector<int>> detach(std::uint64_t address);

  bool covers(std::uint64_t address, std::uint64_t bytes) const;
  // Calls work() if all of the memory is attached; returns false otherwise. A detach waits until work() has returned.
  bool while_attached(std::uint64_t address, std::uint64_t bytes, const std::function<void()>& work) const;

  // A part of the table, the handler's answer to a peer: this header, then regions.
  struct Page {
    std::uint64_t count;  // of the regions in it
    static constexpr std::size_t regions_in(std::size_t bytes) { return (bytes - sizeof(Page)) / sizeof(Region); }
  };
  // Notes `reader`, and writes the header and the regions around `address`. Bytes of `page` behind them stay unchanged.
  void read_page(int reader, std::uint64_t address, std::span<std::byte> page) const;

 private:
  // Errors: kNoMemory. The table is then as before.
  template <class Change>
  Status change(Change&& work);

  RegionWords words_;
  int ranks_;
  mutable std::mutex mutex_;  // held for microseconds; the handler's thread takes it, too
  RegionTable table_;
  std::multiset<std::uint64_t> empty_;  // addresses of regions without bytes
};

// The attached regions of a dynamic space's ranks (space/regions.hpp).
class RegionFinder {
 public:
  // Returns the region that holds this byte of a rank's memory. Errors: kRange, or those of reading the table.
  virtual Result<Region> find(int rank, std::uint64_t address) = 0;

 protected:
  ~RegionFinder() = default;
};

}  // namespace farside
