// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/fabric_targets.hpp"

namespace farside {

FabricTarget* FabricTargets::find_locked(int rank) {
  const int number = index_.find(rank, rank_of());
  return number < 0 ? nullptr : &targets_[static_cast<std::size_t>(number)];
}

FabricTarget& FabricTargets::add(int rank, Peer peer, const TargetDescription* description) {
  const std::scoped_lock held(mutex_);
  if (FabricTarget* known = find_locked(rank)) return *known;
  FabricTarget made;
  made.rank = static_cast<std::uint32_t>(rank) & 0x7fffffff;
  made.peer = static_cast<std::uint32_t>(peer);
  made.description = KnownDescription(description);
  FabricTarget& added = targets_.add(made);
  index_.add(rank_of());
  return added;
}

void FabricTargets::describe(FabricTarget& target, const TargetDescription& description) {
  const std::scoped_lock held(mutex_);
  if (target.description) return;
  target.description = CompactDescription::fits(description)
                           ? KnownDescription(&compact_descriptions_.add(CompactDescription(description)))
                           : KnownDescription(&descriptions_.add(description));
}

BusyTarget& FabricTargets::begin(FabricTarget& target, int rank) {
  const std::scoped_lock held(mutex_);
  BusyTarget* busy = target.busy;
  if (busy == nullptr) {
    std::unique_ptr<BusyTarget> object;
    if (spare_.empty()) {
      object = std::make_unique<BusyTarget>();
    } else {
      object = std::move(spare_.back());
      spare_.pop_back();
    }
    busy = object.get();
    busy->towards(rank);
    busy->target = &target;
    busy->rank = rank;
    busy->order = TargetOrder(target.expects_burst != 0);
    busy->place = busy_.size();
    target.busy = busy;
    busy_.push_back(std::move(object));
    busy_count_.store(busy_.size(), std::memory_order_release);
  }
  ++busy->users;
  return *busy;
}

BusyTarget* FabricTargets::join(FabricTarget& target) {
  const std::scoped_lock held(mutex_);
  if (target.busy != nullptr) ++target.busy->users;
  return target.busy;
}

void FabricTargets::end(BusyTarget& busy) {
  const std::scoped_lock held(mutex_);
  if (--busy.users > 0 || busy.pinned || !busy.done() || busy.has_error() || !busy.order.at_rest()) return;
  busy.target->expects_burst = busy.order.expects_burst() ? 1 : 0;
  busy.target->busy = nullptr;
  const std::size_t place = busy.place;
  std::swap(busy_[place], busy_.back());
  busy_[place]->place = place;
  std::unique_ptr<BusyTarget> ended = std::move(busy_.back());
  busy_.pop_back();
  constexpr std::size_t kMostRoom = 16;
  if (busy_.empty() && busy_.capacity() > kMostRoom) busy_.shrink_to_fit();
  busy_count_.store(busy_.size(), std::memory_order_release);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(ended));
}

}  // namespace farside
