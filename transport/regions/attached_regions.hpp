// SPDX-License-Identifier: BSD-3-Clause
// The regions that this rank has attached to a dynamic space, where its peers can read them: those on the node by
// process_vm_readv, guided by words in this rank's segment; the others by asking the agent. Each peer that reads is
// noted, so that it can be told when something it knows of is gone.
//
// The words, at their offsets behind the control words of the caller:
//
//     0  version     odd while the table changes
//     8  address     of the table in this process
//    16  count       its regions
//    64  stale       how often a peer has told this rank that what it read there is gone; only grows
//   128  readers[]   one bit per peer: has read the table since it was last told
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/regions/region_table.hpp"

namespace farside {

struct RegionWords {
  static constexpr std::size_t kVersion = 0;
  static constexpr std::size_t kAddress = 8;
  static constexpr std::size_t kCount = 16;
  static constexpr std::size_t kStale = 64;
  static constexpr std::size_t kReaders = 128;
  static constexpr std::size_t bytes(int ranks) { return kReaders + (static_cast<std::size_t>(ranks) + 63) / 64 * 8; }

  // Of this rank, or of one whose segment is mapped.
  std::byte* base = nullptr;
  std::atomic_ref<std::uint64_t> word(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base + offset));
  }
  void note_reader(int rank) const {
    // Sequentially consistent: either the reader sees the table as it is after a detach, or the detach sees the reader.
    word(kReaders + static_cast<std::size_t>(rank) / 64 * 8).fetch_or(std::uint64_t{1} << (rank % 64), std::memory_order_seq_cst);
  }
};

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

  // What the agent answers a peer that asks: a page of the table.
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
  mutable std::mutex mutex_;            // held for microseconds; the agent takes it too
  RegionTable table_;
  std::multiset<std::uint64_t> empty_;  // addresses of regions without bytes
};

}  // namespace farside
