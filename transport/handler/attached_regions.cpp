// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/attached_regions.hpp"

#include <fmt/format.h>

namespace farside {

Status AttachedRegions::attach(const Region& region) {
  const std::scoped_lock held(mutex_);
  const auto refused = [&](const char* why) {
    return Error{ErrorKind::kAttach, fmt::format("{} bytes at {:#x} {}", region.bytes, region.address, why)};
  };
  if (region.end() < region.address) return refused("reach beyond the address space");
  if (region.bytes > 0 && table_.overlaps(region.address, region.bytes))
    return refused("overlap with memory that is attached already");
  return without_bad_alloc([&]() -> Status {
    region.bytes == 0 ? void(empty_.insert(region.address)) : table_.insert(region);
    return {};
  });
}

Result<std::vector<int>> AttachedRegions::detach(std::uint64_t address) {
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
  if (found == empty_.end()) return Error{ErrorKind::kAttach, fmt::format("no memory was attached at {:#x}", address)};
  empty_.erase(found);
  return readers;
}

}  // namespace farside
