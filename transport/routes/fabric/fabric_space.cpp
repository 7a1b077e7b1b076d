// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "transport/routes/fabric/fabric_route.hpp"

namespace farside {

namespace {

// The keys of a space's memory, where processes choose them. Only the ranks of the space know its id.
constexpr std::uint64_t kControlKey = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kDataKey = 0xc2b2ae3d27d4eb4f;

}  // namespace

Status FabricSpace::register_memory(const MessageHandler::ServedSpace& served, std::uint64_t data_bytes,
                                    std::uint32_t unit) {
  keys_are_chosen = endpoint.keys_are_chosen();
  const auto expose = [&](void* base, std::size_t bytes, std::uint64_t key, Registration& into) -> Status {
    Result<Registration> made = endpoint.register_memory(base, bytes, space ^ key);
    if (!made) return made.error();
    into = std::move(made.value());
    if (keys_are_chosen || into.key.key >> 32 == 0) return {};
    return Error{ErrorKind::kOther, "the provider's memory keys have more than 32 bits"};
  };
  const bool dynamic = served.attached != nullptr;
  if (keys_are_chosen) own_data.key.key = space ^ kDataKey;  // that of all ranks, also where this one has no data
  if (Status s = expose(served.control, served.control_bytes, kControlKey, own_control); !s) return s;
  if (!dynamic && data_bytes > 0) {
    if (Status s = expose(served.base, data_bytes, kDataKey, own_data); !s) return s;
  }
  if (!keys_are_chosen) {
    own.control_base = own_control.key.base;
    own.control_key = static_cast<std::uint32_t>(own_control.key.key);
    own.data_base = own_data.key.base;
    own.data_key = static_cast<std::uint32_t>(own_data.key.key);
  }
  own.bytes = dynamic ? 0 : data_bytes;
  own.unit = unit;
  MessageHandler::ServedSpace described = served;
  static_assert(sizeof own <= sizeof described.description);
  std::memcpy(described.description.data(), &own, sizeof own);
  described.description_bytes = sizeof own;
  published = endpoint.publish(space, described);
  return published ? Status() : Error{ErrorKind::kOther, "another window of this process has the same id"};
}

Result<FabricTarget*> FabricSpace::described_entry(int to) {
  FabricTarget& target = entry_of(to);
  if (target.description != 0) return &target;
  TargetDescription description;
  const auto answer = std::as_writable_bytes(std::span(&description, 1));
  if (Status asked = ask(target, HandlerRequest::question(MessageKind::kDescribe, answer)); !asked)
    return asked.error();
  targets.describe(target, description);
  return &target;
}

Result<Route::Extent> FabricSpace::extent(int to) {
  if (agreed.same_bytes && agreed.same_units) return Route::Extent{own.bytes, own.unit};
  const Result<FabricTarget*> target = described_entry(to);
  if (!target) return target.error();
  const TargetDescription& description = targets.description(*target.value());
  return Route::Extent{description.bytes, description.unit};
}

Result<FabricSpace::Keyed> FabricSpace::keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes) {
  if (agreed.regions == nullptr) [[likely]]
    return Keyed{{to.target->peer, data_key(*to.target), offset}, bytes};
  const std::uint64_t address = agreed.first_address + offset;
  const Result<Region> found = agreed.regions(to.rank, address);
  if (!found) return found.error();
  const Region& region = found.value();
  return Keyed{{to.target->peer, region.key, address - region.address}, std::min(bytes, region.end() - address)};
}

std::unique_ptr<OperationList> FabricSpace::take_queued(BusyTarget& to, bool even_nothing) {
  for (Waiter waiter(waiting, wake_event);; waiter.pause()) {
    const auto held = targets.hold(*to.target);
    if (auto taken = to.order.take(even_nothing)) return std::move(*taken);
  }
}

FabricTarget& FabricTargets::add(int rank, Peer peer, const TargetDescription* common) {
  const std::scoped_lock held(adding_);
  if (FabricTarget* known = find(rank)) return *known;
  index_.make_room(rank_of());
  FabricTarget& added = targets_.add();
  added.rank = static_cast<std::uint32_t>(rank);
  added.peer = static_cast<std::uint32_t>(peer);
  if (common != nullptr) {
    if (common_ == nullptr) common_ = common;
    added.description = kCommon;
  }
  index_.add(rank_of());
  return added;
}

void FabricTargets::describe(FabricTarget& target, const TargetDescription& description) {
  const std::scoped_lock held(adding_);
  if (target.description != 0) return;
  const auto number = static_cast<std::uint32_t>(descriptions_.size());
  descriptions_.add() = description;
  target.description = kFirstOwn + number;
}

// Gives the target a BusyTarget. With the target's mutex held.
BusyTarget& FabricTargets::attach(FabricTarget& target) {
  const std::scoped_lock held(list_mutex_);
  auto made = std::make_unique<BusyTarget>();
  BusyTarget& busy = *made;
  busy.rank = static_cast<int>(target.rank);
  busy.towards(busy.rank);
  busy.target = &target;
  busy.order = TargetOrder(target.expects_burst);
  busy.place = busy_.size();
  busy_.push_back(std::move(made));
  target.busy = &busy;
  attached_.store(busy_.size(), std::memory_order_release);
  return busy;
}

// Takes the BusyTarget of a target at rest away, unless a thread that visits all targets has it. With the target's
// mutex held.
void FabricTargets::detach(BusyTarget& busy) {
  const std::scoped_lock held(list_mutex_);
  if (busy.users.load(std::memory_order_relaxed) > 0) return;
  busy.target->expects_burst = busy.order.expects_burst();
  busy.target->busy = nullptr;
  const std::size_t place = busy.place;
  std::swap(busy_[place], busy_.back());
  busy_[place]->place = place;
  busy_.pop_back();
  constexpr std::size_t kMostRoom = 16;
  if (busy_.empty() && busy_.capacity() > kMostRoom) busy_.shrink_to_fit();
  attached_.store(busy_.size(), std::memory_order_release);
}

BusyTarget* FabricTargets::begin(FabricTarget& target, bool only_busy) {
  const auto held = hold(target);
  if (only_busy && target.busy == nullptr) return nullptr;
  BusyTarget& busy = target.busy != nullptr ? *target.busy : attach(target);
  busy.users.fetch_add(1, std::memory_order_relaxed);
  return &busy;
}

void FabricTargets::end(BusyTarget& busy, bool visits) {
  FabricTarget& target = *busy.target;
  const auto held = hold(target);
  if (busy.users.fetch_sub(1, std::memory_order_relaxed) > 1 || !busy.at_rest()) return;
  if (visits || attached_.load(std::memory_order_relaxed) > kMostResting) detach(busy);
}

std::size_t FabricTargets::busy() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(busy_, [](const std::unique_ptr<BusyTarget>& busy) { return !busy->at_rest(); }));
}

}  // namespace farside
