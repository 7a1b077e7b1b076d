// SPDX-License-Identifier: BSD-3-Clause
// Regions: the data of a dynamic space, which each rank attaches and detaches at any time. An origin requests the part
// of a target's table around an address when it first needs it, and keeps it. A rank that detaches notifies the origins
// that have read its table, and waits until the notifications have taken effect. An operation on a known region
// therefore costs no round trip, and no detached region is used.
//
//   target                                             origin
//                                                      loads its own `stale`, a control word
//   notes the origin as a reader          <----------  requests regions
//   detach: removes the region
//           adds 1 to `stale` of each reader  ------>
//           returns when that has landed               sees at its next operation that `stale` has changed: drops the
//                                                      tables of all targets
//
// In a dynamic space data begin at address kFirst and have no end: offset 0 is address kFirst. Nothing is ever mapped
// below it, so no pointer to data is null.
//
// Thread safety: all members may be called from any thread. Cost of find and covered: a load, a mutex and a search,
// or, for memory that is not known, one request. Memory: some 80 bytes per region at the target and at each origin that
// uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/handler/attached_regions.hpp"

namespace farside {

class Space;

class Regions {
 public:
  static constexpr std::uint64_t kFirst = 4096;
  static constexpr std::uint64_t kBytes = ~std::uint64_t{0} - 2 * kFirst;

  // `stale`: the control word, the same on all ranks.
  Regions(Space& space, std::uint32_t stale, int ranks) : space_(space), stale_word_(stale), own_(ranks) {}

  // Attach is local. Detach waits until the peers that have read the table are notified. Errors: kAttach, or those of
  // the fabric.
  Status attach(const void* base, std::uint64_t bytes);
  Status detach(const void* base);
  AttachedRegions& own() { return own_; }

  // Returns whether all of this memory of a rank is attached there.
  Result<bool> covered(int rank, std::uint64_t address, std::uint64_t bytes);
  // Returns the region that holds this byte of a rank's memory. Errors: kRange, or those of reading the table.
  Result<Region> find(int rank, std::uint64_t address);

 private:
  static constexpr std::size_t kAtOnce = 64;  // that are read together
  // Returns the region that holds the byte at `address`, if any.
  Result<std::optional<Region>> look_up(int rank, std::uint64_t address);
  Status notify_readers(std::span<const int> readers);

  Space& space_;
  const std::uint32_t stale_word_;
  AttachedRegions own_;
  std::mutex mutex_;                                          // guards what follows; held for microseconds
  std::multimap<std::uint64_t, Registration> registrations_;  // with the endpoint, by address
  std::uint64_t stale_ = 0;                                   // the word when known_ was empty
  std::unordered_map<int, RegionTable> known_;                // the regions that this rank has read
};

}  // namespace farside
