// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/regions.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <iterator>
#include <sched.h>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside {
namespace {

constexpr std::uint64_t kWordAlignment = sizeof(std::uint64_t);

}  // namespace

struct Regions::Registrations {
  std::mutex mutex;
  std::multimap<std::uint64_t, Endpoint::Registration> by_address;
};

Regions::Regions(Space& space, std::uint32_t words, std::byte* own_words, int ranks)
    : space_(space),
      words_(words),
      own_words_{own_words},
      own_(own_words_, ranks),
      registrations_(std::make_unique<Registrations>()) {}
Regions::~Regions() = default;

Status Regions::attach(const void* base, std::uint64_t bytes) {
  const PatientAllocation all_or_nothing;
  Region region;
  region.address = reinterpret_cast<std::uint64_t>(base);
  region.bytes = bytes;
  if (bytes > 0 && region.address < kFirst) {
    return Error{ErrorKind::kAttach, fmt::format("{:#x} is no address of memory", region.address)};
  }
  // Registered before any peer can find the region in the table.
  Endpoint::Registration registration;
  if (space_.fabric_route() != nullptr && bytes > 0) {
    // Adapter atomics change whole words, whose other bytes may belong to another region.
    const std::uint64_t before = space_.mapped_route().rules().integers_by_nic ? region.address % kWordAlignment : 0;
    const std::uint64_t behind = space_.mapped_route().rules().integers_by_nic ? -region.end() % kWordAlignment : 0;
    std::byte* const from = static_cast<std::byte*>(const_cast<void*>(base)) - before;
    Result<Endpoint::Registration> exposed =
        space_.fabric_route()->endpoint().register_memory(from, before + bytes + behind, random_bits());
    if (!exposed) return Error{ErrorKind::kAttach, exposed.error().text};
    registration = std::move(exposed.value());
    region.key = registration.key;
    region.key.base += before;
  }
  if (Status attached = own_.attach(region); !attached) return attached;
  if (registration.region != nullptr) {
    const std::scoped_lock held(registrations_->mutex);
    registrations_->by_address.emplace(region.address, std::move(registration));
  }
  return {};
}

Status Regions::detach(const void* base) {
  const PatientAllocation readers_must_know;
  const auto address = reinterpret_cast<std::uint64_t>(base);
  Result<std::vector<int>> readers = own_.detach(address);
  if (!readers) return readers.error();
  Status notified = notify_readers(readers.value());
  const std::scoped_lock held(registrations_->mutex);
  if (const auto found = registrations_->by_address.find(address); found != registrations_->by_address.end()) {
    registrations_->by_address.erase(found);
  }
  return notified;
}

Status Regions::notify_readers(std::span<const int> readers) {
  ControlMemory memory(space_);
  std::deque<ControlMemory::Operation> operations(readers.size());
  for (std::size_t i = 0; i < readers.size(); ++i) {
    memory.fetch_add(operations[i], readers[i], words_ + static_cast<std::uint32_t>(RegionWords::kStale), 1);
  }
  Status first;
  for (ControlMemory::Operation& operation : operations) {
    for (Waiter waiter(Process::instance(), space_.words().wake_event()); !operation.done() && !operation.failed();)
      waiter.pause();
    if (operation.failed() && first) first = operation.take_error();
  }
  return first;
}

Result<std::optional<Region>> Regions::look_up(int rank, std::uint64_t address) {
  const auto holds = [&](const Region& region) { return address >= region.address && address < region.end(); };
  // Read before the peer notes this rank as a reader: any later detach there changes the word.
  const std::uint64_t stale = own_stale();
  {
    const std::scoped_lock held(mutex_);
    if (stale != stale_) {
      known_.clear();
      stale_ = stale;
    }
    const Known& known = known_[rank];
    if (const auto behind = known.upper_bound(address); behind != known.begin()) {
      if (const Region& last = std::prev(behind)->second; holds(last)) return std::optional(last);
    }
  }
  // The memory may have been attached since.
  const Result<std::vector<Region>> read =
      space_.words().mapped(rank) ? read_on_node(rank, address) : ask_handler(rank, address);
  if (!read) return read.error();
  const std::scoped_lock held(mutex_);
  std::optional<Region> found;
  for (const Region& region : read.value()) {
    if (stale == stale_) known_[rank].insert_or_assign(region.address, region);
    if (holds(region)) found = region;
  }
  return found;
}

Result<std::vector<Region>> Regions::read_on_node(int rank, std::uint64_t address) {
  const RegionWords words{reinterpret_cast<std::byte*>(&space_.words().mapped(rank).word(words_))};
  words.note_reader(space_.rank());
  const std::int32_t pid = space_.words().node().extra(*space_.words().node().find(rank))->pid;
  while (true) {
    std::vector<Region> regions;
    Status status;
    const auto copy_from = [&](const RegionWords::Place& place) {
      const std::size_t before = regions.size();
      // The address is in none of the regions before `low` or from `high` on. Memory that was allocated last often has
      // the highest address.
      std::uint64_t low = 0, high = place.count;
      std::uint64_t first = high - std::min<std::uint64_t>(high, kAtOnce);
      while (low < high && status) {
        regions.resize(before + std::min<std::uint64_t>(high - first, kAtOnce));
        const std::span<Region> part = std::span(regions).subspan(before);
        status = read_process_memory(pid, place.address + first * sizeof(Region), part.data(), part.size_bytes());
        if (address < part.front().address) {
          high = first;
        } else if (address >= part.back().end()) {
          low = first + part.size();
        } else {
          return;
        }
        const std::uint64_t middle = low + (high - low) / 2;
        first = middle - std::min<std::uint64_t>(middle - low, kAtOnce / 2);
      }
    };
    const auto copy = [&](const RegionWords::Places& places) { std::ranges::for_each(places, copy_from); };
    if (words.read(copy)) {
      // The error counts only if the table has not moved: a table that has moved may be unmapped.
      if (!status) return status.error();
      return regions;
    }
    sched_yield();
  }
}

Result<std::vector<Region>> Regions::ask_handler(int rank, std::uint64_t address) {
  using Page = AttachedRegions::Page;
  std::array<std::byte, sizeof(Page) + kAtOnce * sizeof(Region)> answer;
  if (Status asked = space_.fabric_route()->ask_for_regions(rank, address, answer); !asked) return asked.error();
  Page page;
  std::memcpy(&page, answer.data(), sizeof page);
  std::vector<Region> regions(std::min<std::size_t>(page.count, kAtOnce));
  if (!regions.empty()) std::memcpy(regions.data(), answer.data() + sizeof page, regions.size() * sizeof(Region));
  return regions;
}

Result<bool> Regions::covered(int rank, std::uint64_t address, std::uint64_t bytes) {
  if (rank == space_.rank()) return own_.covers(address, bytes);
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
