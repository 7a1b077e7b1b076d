// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/regions.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/waiter.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside {

Status Regions::attach(const void* base, std::uint64_t bytes) {
  const PatientAllocation all_or_nothing;
  Region region;
  region.address = reinterpret_cast<std::uint64_t>(base);
  region.bytes = bytes;
  if (bytes > 0 && region.address < kFirst) {
    return Error{ErrorKind::kAttach, fmt::format("{:#x} is no address of memory", region.address)};
  }
  // Registered before any peer can find the region in the table.
  Registration registration;
  if (space_.fabric_route() != nullptr && bytes > 0) {
    // Adapter atomics change whole words, whose other bytes may belong to another region.
    constexpr std::uint64_t kWord = sizeof(std::uint64_t);
    const bool by_nic = space_.mapped_route().rules().integers_by_nic;
    const std::uint64_t before = by_nic ? region.address % kWord : 0, behind = by_nic ? -region.end() % kWord : 0;
    std::byte* const from = static_cast<std::byte*>(const_cast<void*>(base)) - before;
    Result<Registration> exposed =
        space_.fabric_route()->endpoint().register_memory(from, before + bytes + behind, random_bits());
    if (!exposed) return Error{ErrorKind::kAttach, exposed.error().text};
    registration = std::move(exposed.value());
    region.key = registration.key;
    region.key.base += before;
  }
  if (Status attached = own_.attach(region); !attached) return attached;
  if (registration.region != nullptr) {
    const std::scoped_lock held(mutex_);
    registrations_.emplace(region.address, std::move(registration));
  }
  return {};
}

Status Regions::detach(const void* base) {
  const PatientAllocation readers_must_know;
  const auto address = reinterpret_cast<std::uint64_t>(base);
  Result<std::vector<int>> readers = own_.detach(address);
  if (!readers) return readers.error();
  Status notified = notify_readers(readers.value());
  decltype(registrations_)::node_type ended;  // its end may take long
  const std::scoped_lock held(mutex_);
  ended = registrations_.extract(address);
  return notified;
}

Status Regions::notify_readers(std::span<const int> readers) {
  ControlMemory memory(space_);
  std::deque<ControlMemory::Operation> operations(readers.size());
  for (std::size_t i = 0; i < readers.size(); ++i) {
    memory.fetch_add(operations[i], readers[i], stale_word_, 1);
  }
  Status first;
  for (ControlMemory::Operation& operation : operations) first.keep(memory.await(operation));
  return first;
}

Result<std::optional<Region>> Regions::look_up(int rank, std::uint64_t address) {
  if (rank == space_.rank()) return own_.find(address);
  // Read before the peer notes this rank as a reader: any later detach there changes the word.
  const std::uint64_t stale = std::atomic_ref(*space_.words().own(stale_word_)).load(std::memory_order_acquire);
  {
    const std::scoped_lock held(mutex_);
    if (stale != stale_) {
      known_.clear();
      stale_ = stale;
    }
    if (const Region* const known = known_[rank].find(address)) return std::optional(*known);
  }
  // The memory may have been attached since.
  std::array<Region, kAtOnce> read;
  const std::span<std::byte> answer = std::as_writable_bytes(std::span(read));
  if (Status asked = space_.route(rank).ask_for_regions(rank, address, answer); !asked) return asked.error();
  const std::scoped_lock held(mutex_);
  std::optional<Region> found;
  for (const Region& region : read) {
    if (region.bytes == 0) break;
    if (stale == stale_) known_[rank].insert(region);
    if (address >= region.address && address < region.end()) found = region;
  }
  return found;
}

Result<bool> Regions::covered(int rank, std::uint64_t address, std::uint64_t bytes) {
  while (bytes > 0) {
    const Result<std::optional<Region>> region = look_up(rank, address);
    if (!region) return region.error();
    if (!region.value()) return false;
    const std::uint64_t part = std::min(bytes, region.value()->end() - address);
    address += part;
    bytes -= part;
  }
  return true;
}

Result<Region> Regions::find(int rank, std::uint64_t address) {
  const Result<std::optional<Region>> region = look_up(rank, address);
  if (!region) return region.error();
  if (!region.value())
    return Error{ErrorKind::kRange, fmt::format("rank {} has attached no memory at {:#x}", rank, address)};
  return *region.value();
}

}  // namespace farside
