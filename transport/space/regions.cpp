// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/regions.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <sched.h>

#include <fmt/format.h>

#include "transport/base/random.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/node/process_memory.hpp"
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
  Region region;
  region.address = reinterpret_cast<std::uint64_t>(base);
  region.bytes = bytes;
  if (bytes > 0 && region.address < kFirst) {
    return Error{ErrorKind::kAttach, fmt::format("{:#x} is no address of memory", region.address)};
  }
  // Registered before any peer can find the region in the table.
  Endpoint::Registration registration;
  if (space_.fabric_ != nullptr && bytes > 0) {
    // Adapter atomics change whole words, whose other bytes may belong to another region.
    const std::uint64_t before = space_.rules_.integers_by_nic ? region.address % kWordAlignment : 0;
    const std::uint64_t behind = space_.rules_.integers_by_nic ? -region.end() % kWordAlignment : 0;
    std::byte* const from = static_cast<std::byte*>(const_cast<void*>(base)) - before;
    Result<Endpoint::Registration> exposed =
        space_.fabric_->endpoint().register_memory(from, before + bytes + behind, random_bits());
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
    for (Waiter waiter(Process::instance(), space_.wake_event()); !operation.done() && !operation.failed();)
      waiter.pause();
    if (operation.failed() && first) first = operation.take_error();
  }
  return first;
}

Regions::Table Regions::known(int rank) {
  const std::uint64_t stale = own_stale();
  const std::scoped_lock held(mutex_);
  if (stale != stale_) {
    known_.clear();
    stale_ = stale;
  }
  const auto found = known_.find(rank);
  return found != known_.end() ? found->second : nullptr;
}

Result<Regions::Table> Regions::read(int rank) {
  // Read before the peer notes this rank as a reader: any later detach there changes the word.
  const std::uint64_t stale = own_stale();
  Result<Table> table = space_.mapped_control(rank) ? read_on_node(rank) : ask_handler(rank);
  if (!table) return table;
  const std::scoped_lock held(mutex_);
  if (stale == stale_) known_[rank] = table.value();
  return table;
}

Result<Regions::Table> Regions::read_on_node(int rank) {
  const RegionWords words{reinterpret_cast<std::byte*>(&space_.mapped_control(rank).word(words_))};
  words.note_reader(space_.rank());
  while (true) {
    std::vector<Region> regions;
    Status status;
    const auto copy = [&](const RegionWords::Place& place) {
      regions.resize(place.count);
      if (place.count == 0) return;
      const std::int32_t pid = space_.node_.extra(*space_.node_.find(rank))->pid;
      status = read_process_memory(pid, place.address, regions.data(), place.count * sizeof(Region));
    };
    if (words.read(copy)) {
      // The error counts only if the table has not moved: a table that has moved may be unmapped.
      if (!status) return status.error();
      return std::make_shared<const RegionTable>(std::move(regions));
    }
    sched_yield();
  }
}

Result<Regions::Table> Regions::ask_handler(int rank) {
  using Page = AttachedRegions::Page;
  std::vector<Region> regions;
  Page first{};
  for (std::uint64_t known = 0; known == 0 || known < first.count;) {
    alignas(Region) std::array<std::byte, kMaxPayload> answer;
    if (Status asked = space_.fabric_->ask_for_regions(rank, known, answer); !asked) return asked.error();
    Page page;
    std::memcpy(&page, answer.data(), sizeof page);
    if (known > 0 && page.version != first.version) {
      // The table has changed since the first page.
      regions.clear();
      known = 0;
      continue;
    }
    first = page;
    const std::size_t count = std::min<std::size_t>(page.count - known, Page::regions_in(answer.size()));
    regions.resize(known + count);
    if (count > 0) std::memcpy(&regions[known], answer.data() + sizeof page, count * sizeof(Region));
    known += count;
    if (count == 0) break;
  }
  return std::make_shared<const RegionTable>(std::move(regions));
}

Result<bool> Regions::covered(int rank, std::uint64_t address, std::uint64_t bytes) {
  if (rank == space_.rank()) return own_.covers(address, bytes);
  if (const Table table = known(rank); table != nullptr && table->covers(address, bytes)) return true;
  // The memory may have been attached since the table was read.
  const Result<Table> table = read(rank);
  if (!table) return table.error();
  return table.value()->covers(address, bytes);
}

Result<Region> Regions::find(int rank, std::uint64_t address) {
  Table table = known(rank);
  const Region* region = table != nullptr ? table->find(address) : nullptr;
  if (region == nullptr) {
    Result<Table> now = read(rank);
    if (!now) return now.error();
    table = now.value();
    region = table->find(address);
  }
  if (region == nullptr) {
    return Error{ErrorKind::kRange, fmt::format("rank {} has attached no memory at {:#x}", rank, address)};
  }
  return *region;
}

}  // namespace farside
