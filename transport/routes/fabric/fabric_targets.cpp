// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/fabric/fabric_targets.hpp"

#include <algorithm>

namespace farside {

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
  const bool compact = CompactDescription::fits(description);
  const std::size_t before = compact ? compact_descriptions_.size() : descriptions_.size();
  if (compact) {
    compact_descriptions_.add() = CompactDescription(description);
  } else {
    descriptions_.add() = description;
  }
  target.description = kFirstOwn + 2 * static_cast<std::uint32_t>(before) + (compact ? 0 : 1);
}

TargetDescription FabricTargets::description(const FabricTarget& target) const {
  const std::uint32_t number = target.description;
  if (number == kCommon) return *common_;
  const std::uint32_t place = (number - kFirstOwn) / 2;
  return (number - kFirstOwn) % 2 == 0 ? compact_descriptions_[place].full() : descriptions_[place];
}

// Gives the target a BusyTarget. With the target's mutex held.
BusyTarget& FabricTargets::attach(FabricTarget& target, int rank) {
  const std::scoped_lock held(list_mutex_);
  std::unique_ptr<BusyTarget> object;
  if (spare_.empty()) {
    object = std::make_unique<BusyTarget>();
  } else {
    object = std::move(spare_.back());
    spare_.pop_back();
  }
  if (busy_.size() == busy_.capacity()) busy_.reserve(2 * busy_.size() + 1);  // the rest needs no memory
  BusyTarget& busy = *object;
  busy.towards(rank);
  busy.target = &target;
  busy.rank = rank;
  busy.order = TargetOrder(target.expects_burst);
  busy.place = busy_.size();
  target.busy = &busy;
  busy_.push_back(std::move(object));
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
  std::unique_ptr<BusyTarget> ended = std::move(busy_.back());
  busy_.pop_back();
  constexpr std::size_t kMostRoom = 16;
  if (busy_.empty() && busy_.capacity() > kMostRoom) busy_.shrink_to_fit();
  attached_.store(busy_.size(), std::memory_order_release);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(ended));
}

BusyTarget& FabricTargets::begin(FabricTarget& target, int rank) {
  const auto held = hold(target);
  BusyTarget& busy = target.busy != nullptr ? *target.busy : attach(target, rank);
  change_users(busy, 1);
  return busy;
}

BusyTarget* FabricTargets::join(FabricTarget& target) {
  const auto held = hold(target);
  BusyTarget* const busy = target.busy;
  if (busy != nullptr) change_users(*busy, 1);
  return busy;
}

void FabricTargets::end(BusyTarget& busy, bool visits) {
  FabricTarget& target = *busy.target;
  const auto held = hold(target);
  if (change_users(busy, ~std::uint32_t{0}) > 1 || !busy.at_rest()) return;
  if (visits || attached_.load(std::memory_order_relaxed) > kMostResting) detach(busy);
}

std::size_t FabricTargets::busy() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(busy_, [](const std::unique_ptr<BusyTarget>& busy) { return !busy->at_rest(); }));
}

}  // namespace farside
