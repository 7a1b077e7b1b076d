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
  const auto number = static_cast<std::uint32_t>(descriptions_.size());
  descriptions_.add() = description;
  target.description = kFirstOwn + number;
}

const TargetDescription& FabricTargets::description(const FabricTarget& target) const {
  const std::uint32_t number = target.description;
  return number == kCommon ? *common_ : descriptions_[number - kFirstOwn];
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
