// SPDX-License-Identifier: BSD-3-Clause
// The regions that this rank has attached to a dynamic space, where its peers can read them: those on the node by
// process_vm_readv, guided by words in this rank's segment; the others by asking the handler. Each peer that reads is
// noted, so that it can be told when something it knows of is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/handler/region_table.hpp"
#include "transport/handler/region_words.hpp"

namespace farside {

class AttachedRegions {
 public:
  AttachedRegions(RegionWords words, int ranks) : words_(words), ranks_(ranks) {}
  AttachedRegions(const AttachedRegions&) = delete;
  AttachedRegions& operator=(const AttachedRegions&) = delete;

  // Errors: kAttach. Regions without bytes are remembered, but nobody can reach them.
  Status attach(const Region& region);
  // The peers that have to be told: whoever has read the table since they were last told.
  Result<std::vector<int>> detach(std::uint64_t address);

  bool covers(std::uint64_t address, std::uint64_t bytes) const;
  // Does something with attached memory; false, and nothing was done, if not all of it is. A detach waits meanwhile.
  bool while_attached(std::uint64_t address, std::uint64_t bytes, const std::function<void()>& work) const;

  // What the handler answers a peer that asks: a page of the table.
  struct Page {
    std::uint64_t version;
    std::uint64_t count;    // in all
    static constexpr std::size_t regions_in(std::size_t bytes) { return (bytes - sizeof(Page)) / sizeof(Region); }
  };
  // `reader` is noted. The rest of `page` is left as it is.
  void read_page(int reader, std::uint64_t first, std::span<std::byte> page) const;

 private:
  template <class Change>
  void change(Change&& work);

  RegionWords words_;
  int ranks_;
  mutable std::mutex mutex_;  // held for microseconds; the handler takes it too
  RegionTable table_;
  std::multiset<std::uint64_t> empty_;  // addresses of regions without bytes
};

}  // namespace farside
