// SPDX-License-Identifier: BSD-3-Clause
// The regions of one rank in a dynamic space: ranges of its memory, by address, disjoint and none empty. As the rank
// itself keeps it, and as its peers have read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/address.hpp"

namespace farside {

// Plain bytes: peers read them as they are.
struct Region {
  std::uint64_t address = 0;  // in its process
  std::uint64_t bytes = 0;
  RemoteKey key;              // for the fabric, if the space uses it
  std::uint64_t end() const { return address + bytes; }
};
static_assert(sizeof(Region) == 32);

// In order of addresses.
class RegionTable {
 public:
  RegionTable() = default;
  explicit RegionTable(std::vector<Region> regions) : regions_(std::move(regions)) {}
  const std::vector<Region>& all() const { return regions_; }

  // The region that holds the byte at `address`, or null.
  const Region* find(std::uint64_t address) const {
    const auto behind = std::ranges::upper_bound(regions_, address, {}, &Region::address);
    if (behind == regions_.begin()) return nullptr;
    const Region& last = *std::prev(behind);
    return address < last.end() ? &last : nullptr;
  }
  // Whether all bytes are in regions: an access may run on from one into another that begins where it ends.
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
  // False if no region begins there.
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
