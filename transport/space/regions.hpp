// SPDX-License-Identifier: BSD-3-Clause
// Regions: the data of a dynamic space, which each rank attaches and detaches at any time. An origin reads the part of
// a target's table around an address when it first needs it, and keeps it. A rank that detaches notifies the origins
// that have read its table, and waits until the notifications have taken effect. An operation on a known region
// therefore costs no round trip, and no detached region is used.
//
//   target                                             origin
//                                                      loads its own `stale`
//                                         <----------  sets its bit in the target's `readers`, reads regions
//   detach: removes the region
//           clears the bits of `readers`
//           adds 1 to `stale` of each     ---------->
//           returns when that has landed               sees at its next operation that `stale` has changed: drops the
//                                                      tables of all targets
//
// In a dynamic space data begin at address kFirst and have no end: offset 0 is address kFirst. Nothing is ever mapped
// below it, so no pointer to data is null.
//
// Thread safety: all members may be called from any thread. Cost of find and covered: a load, a mutex and a search,
// or, for memory that is not known, one request, or some reads of the table's two lists (on-node: one for the highest
// regions, else a binary search). Memory: 32 bytes per region at the target and at each origin that uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/handler/attached_regions.hpp"

namespace farside {

class Space;

class Regions final : public RegionFinder {
 public:
  static constexpr std::uint64_t kFirst = 4096;
  static constexpr std::uint64_t kBytes = ~std::uint64_t{0} - 2 * kFirst;

  // `words` is the offset of RegionWords in every rank's control block, `own_words` the address of this rank's.
  Regions(Space& space, std::uint32_t words, std::byte* own_words, int ranks);
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;
  ~Regions();

  // Attach is local. Detach waits until the peers that have read the table are notified. Errors: kAttach, or those of
  // the fabric.
  Status attach(const void* base, std::uint64_t bytes);
  Status detach(const void* base);
  AttachedRegions& own() { return own_; }

  // Returns whether all of this memory of a rank is attached there.
  Result<bool> covered(int rank, std::uint64_t address, std::uint64_t bytes);
  Result<Region> find(int rank, std::uint64_t address) override;

 private:
  struct Registrations;  // of regions with the endpoint, by address
  // The regions of a rank that this one has read, by address.
  using Known = std::map<std::uint64_t, Region>;
  static constexpr std::size_t kAtOnce = 64;  // that are read together
  std::uint64_t own_stale() const { return own_words_.word(RegionWords::kStale).load(std::memory_order_acquire); }
  // Returns the region that holds the byte at `address`, if any.
  Result<std::optional<Region>> look_up(int rank, std::uint64_t address);
  // Read regions around `address`.
  Result<std::vector<Region>> read_on_node(int rank, std::uint64_t address);
  Result<std::vector<Region>> ask_handler(int rank, std::uint64_t address);
  Status notify_readers(std::span<const int> readers);

  Space& space_;
  std::uint32_t words_;
  RegionWords own_words_;
  AttachedRegions own_;
  std::unique_ptr<Registrations> registrations_;
  std::mutex mutex_;         // guards stale_ and known_; held for microseconds
  std::uint64_t stale_ = 0;  // own_stale() when known_ was empty
  std::unordered_map<int, Known> known_;
};

}  // namespace farside
