// SPDX-License-Identifier: BSD-3-Clause
// The regions of one rank in a dynamic space: disjoint, non-empty ranges of its memory. The rank has such a table, and
// its peers have copies of it. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/address.hpp"

namespace farside {

// Plain bytes: peers read the struct as it is in memory.
struct Region {
  std::uint64_t address = 0;  // in the process of its rank
  std::uint64_t bytes = 0;
  RemoteKey key;              // for the fabric, if the space uses it
  std::uint64_t end() const { return address + bytes; }
};
static_assert(sizeof(Region) == 32);

// Sorted by address.
class RegionTable {
 public:
  RegionTable() = default;
  const std::vector<Region>& all() const { return regions_; }

  // Returns the region that holds the byte at `address`, or null.
  const Region* find(std::uint64_t address) const {
    const auto behind = std::ranges::upper_bound(regions_, address, {}, &Region::address);
    if (behind == regions_.begin()) return nullptr;
    const Region& last = *std::prev(behind);
    return address < last.end() ? &last : nullptr;
  }
  // Returns at most so many regions, with those around `address`.
  std::span<const Region> around(std::uint64_t address, std::size_t most) const {
    const auto behind = std::ranges::upper_bound(regions_, address, {}, &Region::address) - regions_.begin();
    const auto at = static_cast<std::size_t>(behind);
    const std::size_t count = std::min(most, regions_.size());
    return std::span(regions_).subspan(std::min(at - std::min(at, most / 2), regions_.size() - count), count);
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
    const auto behind = std::ranges::lower_bound(regions_, address, {}, &Region::address);
    if (behind != regions_.end() && behind->address - address < bytes) return true;
    return behind != regions_.begin() && std::prev(behind)->end() > address;
  }
  void insert(const Region& region) {
    regions_.insert(std::ranges::upper_bound(regions_, region.address, {}, &Region::address), region);
  }
  // Returns false if no region begins at `address`.
  bool erase(std::uint64_t address) {
    const auto found = std::ranges::lower_bound(regions_, address, {}, &Region::address);
    if (found == regions_.end() || found->address != address) return false;
    regions_.erase(found);
    return true;
  }

 private:
  std::vector<Region> regions_;
};

}  // namespace farside
