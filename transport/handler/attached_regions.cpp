// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/attached_regions.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace farside {

template <class Change>
Status AttachedRegions::change(Change&& work) {
  Status changed;
  words_.change([&] {
    changed = without_bad_alloc([&] { return work(), Status(); });
    RegionWords::Places places;
    std::ranges::transform(table_.lists(), places.begin(), [](const RegionTable::List& list) {
      return RegionWords::Place{reinterpret_cast<std::uint64_t>(list.data()), list.size()};
    });
    return places;
  });
  return changed;
}

Status AttachedRegions::attach(const Region& region) {
  const std::scoped_lock held(mutex_);
  if (region.bytes == 0) {
    empty_.insert(region.address);
    return {};
  }
  if (region.end() < region.address) {
    return Error{ErrorKind::kAttach,
                 fmt::format("{} bytes at {:#x} reach beyond the address space", region.bytes, region.address)};
  }
  if (table_.overlaps(region.address, region.bytes)) {
    return Error{ErrorKind::kAttach, fmt::format("{} bytes at {:#x} overlap with memory that is attached already",
                                                 region.bytes, region.address)};
  }
  return change([&] { table_.insert(region); });
}

Result<std::vector<int>> AttachedRegions::detach(std::uint64_t address) {
  const std::scoped_lock held(mutex_);
  bool removed = false;
  if (const Region* region = table_.find(address); region != nullptr && region->address == address) {
    if (Status changed = change([&] { removed = table_.erase(address); }); !changed) return changed.error();
  }
  if (!removed) {
    const auto found = empty_.find(address);
    if (found == empty_.end()) {
      return Error{ErrorKind::kAttach, fmt::format("no memory was attached at {:#x}", address)};
    }
    empty_.erase(found);
    return std::vector<int>();
  }
  std::vector<int> readers;
  for (int first = 0; first < ranks_; first += 64) {
    for (std::uint64_t bits = words_.take_readers(first); bits != 0; bits &= bits - 1)
      readers.push_back(first + std::countr_zero(bits));
  }
  return readers;
}

bool AttachedRegions::covers(std::uint64_t address, std::uint64_t bytes) const {
  const std::scoped_lock held(mutex_);
  return table_.covers(address, bytes);
}

bool AttachedRegions::while_attached(std::uint64_t address, std::uint64_t bytes,
                                     const std::function<void()>& work) const {
  const std::scoped_lock held(mutex_);
  if (!table_.covers(address, bytes)) return false;
  work();
  return true;
}

void AttachedRegions::read_page(int reader, std::uint64_t address, std::span<std::byte> page) const {
  const std::scoped_lock held(mutex_);
  words_.note_reader(reader);
  Page head{0};
  table_.around(address, Page::regions_in(page.size()), [&](std::span<const Region> regions) {
    if (regions.empty()) return;
    std::memcpy(page.data() + sizeof head + head.count * sizeof(Region), regions.data(), regions.size_bytes());
    head.count += regions.size();
  });
  std::memcpy(page.data(), &head, sizeof head);
}

}  // namespace farside
