// SPDX-License-Identifier: BSD-3-Clause
// What a dynamic space has where others have one piece of data per rank: the regions that each rank attaches and
// detaches as it goes. An origin reads the table of a target when it first needs it and keeps it; a rank that detaches
// tells those who have read its table, and waits until they have been told. So an operation costs no round trip
// for a region that is known, and no detached one is used.
//
//   target                                             origin
//                                                      notes its own `stale`
//                                         <----------  sets its bit in the target's `readers`, reads the table
//   detach: takes the region out
//           takes the bits off `readers`
//           adds 1 to `stale` of each     ---------->
//           returns when that has landed               sees at its next operation that `stale` has moved: drops what
//                                                      it has read of all targets
//
// In a dynamic space data "begin" at address kFirst and have no end: offset 0 is address kFirst. Below it nothing is
// ever mapped, and so no pointer to data is null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "transport/base/result.hpp"
#include "transport/handler/attached_regions.hpp"
#include "transport/handler/region_table.hpp"

namespace farside {

class Space;

class Regions {
 public:
  static constexpr std::uint64_t kFirst = 4096;
  static constexpr std::uint64_t kBytes = ~std::uint64_t{0} - 2 * kFirst;

  // `words` is the offset of RegionWords in every rank's segment, `own_words` where this rank's are.
  Regions(Space& space, std::uint32_t words, std::byte* own_words, int ranks);
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;
  ~Regions();

  // Of this rank; local, but a detach waits until its peers have been told. Errors: kAttach, or that of the fabric.
  Status attach(const void* base, std::uint64_t bytes);
  Status detach(const void* base);
  AttachedRegions& own() { return own_; }

  // Whether all of this memory of a rank is attached there.
  Result<bool> covered(int rank, std::uint64_t address, std::uint64_t bytes);
  // For the fabric: the region that holds a byte of a rank's memory. Errors: kRange.
  Result<Region> find(int rank, std::uint64_t address);

 private:
  struct Registrations;                 // with the endpoint, by address
  using Table = std::shared_ptr<const RegionTable>;
  std::uint64_t own_stale() const { return own_words_.word(RegionWords::kStale).load(std::memory_order_acquire); }
  // What is known of a rank's regions, or null.
  Table known(int rank);
  Result<Table> read(int rank);
  Result<Table> read_on_node(int rank);
  Result<Table> ask_handler(int rank);
  Status tell(std::span<const int> readers);

  Space& space_;
  std::uint32_t words_;
  RegionWords own_words_;
  AttachedRegions own_;
  std::unique_ptr<Registrations> registrations_;
  std::mutex mutex_;                              // of what was read; held for microseconds
  std::uint64_t stale_ = 0;                       // own_stale() when it was read
  std::unordered_map<int, Table> known_;
};

}  // namespace farside
