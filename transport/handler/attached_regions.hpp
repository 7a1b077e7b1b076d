// SPDX-License-Identifier: BSD-3-Clause
// The regions that ranks attach to a dynamic space.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"

namespace farside {

// Plain bytes: travels as it is in memory.
struct Region {
  std::uint64_t address = 0;  // in the process of its rank
  std::uint64_t bytes = 0;
  RemoteKey key;  // for the fabric, if the space uses it
  std::uint64_t end() const { return address + bytes; }
};
static_assert(sizeof(Region) == 32);

// Regions of one rank in a dynamic space: disjoint, non-empty ranges of its memory. The rank has such a table, and its
// peers have copies of parts of it. Not thread-safe.
class RegionTable {
 public:
  // Returns the region that holds the byte at `address`, or null.
  const Region* find(std::uint64_t address) const {
    const auto behind = regions_.upper_bound(address);
    return behind != regions_.begin() && address < std::prev(behind)->second.end() ? &std::prev(behind)->second
                                                                                   : nullptr;
  }
  // Copies regions around `address`, at most as many as `to` has.
  void copy_around(std::uint64_t address, std::span<Region> to) const {
    auto next = regions_.upper_bound(address);
    for (std::size_t before = to.size() / 2; before > 0 && next != regions_.begin(); --before) --next;
    for (auto each = to.begin(); each != to.end() && next != regions_.end(); ++next) *each++ = next->second;
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
    const auto behind = regions_.lower_bound(address);
    if (behind != regions_.end() && behind->first - address < bytes) return true;
    return behind != regions_.begin() && std::prev(behind)->second.end() > address;
  }
  // If this throws std::bad_alloc, the table is unchanged.
  void insert(const Region& region) { regions_.insert_or_assign(region.address, region); }
  // Returns false if no region begins at `address`.
  bool erase(std::uint64_t address) { return regions_.erase(address) > 0; }

 private:
  std::map<std::uint64_t, Region> regions_;  // by address
};

// The regions that this rank has attached to a dynamic space. Peers request parts of the table from the handler. The
// table notes its readers, because a detach must notify them.
//
// Thread safety: any. No function issues a remote operation. Memory: some 80 bytes per region, one bit per peer.
class AttachedRegions {
 public:
  explicit AttachedRegions(int ranks) : readers_(static_cast<std::size_t>(ranks)) {}

  // Errors: kAttach, kNoMemory. A region without bytes can be detached, but not accessed.
  Status attach(const Region& region) {
    const std::scoped_lock held(mutex_);
    const auto refused = [&](const char* why) {
      return Error{ErrorKind::kAttach, fmt::format("{} bytes at {:#x} {}", region.bytes, region.address, why)};
    };
    if (region.end() < region.address) return refused("reach beyond the address space");
    if (region.bytes > 0 && table_.overlaps(region.address, region.bytes))
      return refused("overlap with memory that is attached already");
    return without_bad_alloc([&] { region.bytes == 0 ? void(empty_.insert(region.address)) : table_.insert(region); });
  }
  // Returns the peers to notify: the readers of the table that no earlier detach has returned. Errors: kAttach,
  // kNoMemory.
  Result<std::vector<int>> detach(std::uint64_t address) {
    const std::scoped_lock held(mutex_);
    std::vector<int> readers;
    if (table_.erase(address)) {
      for (std::size_t rank = 0; rank < readers_.size(); ++rank) {
        if (readers_[rank]) readers.push_back(static_cast<int>(rank));
      }
      readers_.assign(readers_.size(), false);
      return readers;
    }
    const auto found = empty_.find(address);
    if (found == empty_.end())
      return Error{ErrorKind::kAttach, fmt::format("no memory was attached at {:#x}", address)};
    empty_.erase(found);
    return readers;
  }

  // Returns the region that holds the byte at `address`, if any.
  std::optional<Region> find(std::uint64_t address) const {
    const std::scoped_lock held(mutex_);
    const Region* const found = table_.find(address);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  // Calls work() if all of the memory is attached; returns false otherwise. A detach waits until work() has returned.
  template <class Work>
  bool while_attached(std::uint64_t address, std::uint64_t bytes, Work&& work) const {
    const std::scoped_lock held(mutex_);
    if (!table_.covers(address, bytes)) return false;
    work();
    return true;
  }
  // Notes `reader`, and copies regions around `address` (RegionTable::copy_around).
  void read(int reader, std::uint64_t address, std::span<Region> to) {
    const std::scoped_lock held(mutex_);
    readers_[static_cast<std::size_t>(reader)] = true;
    table_.copy_around(address, to);
  }

 private:
  mutable std::mutex mutex_;  // held for microseconds; the handler's thread takes it, too
  RegionTable table_;
  std::multiset<std::uint64_t> empty_;  // addresses of regions without bytes
  std::vector<bool> readers_;           // by rank: since the last notification
};

}  // namespace farside
