// SPDX-License-Identifier: BSD-3-Clause
// The table of the regions that this rank has attached to a dynamic space. On-node peers read the table by
// process_vm_readv(2), guided by the RegionWords in this rank's segment. Other peers request parts of it from the
// handler. The table notes its readers, because a detach must notify them.
//
// Thread safety: any. No function issues a remote operation. Memory: 32 bytes per region, one bit per peer.
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

}  // namespace farside
