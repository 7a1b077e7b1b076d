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

ActiveTarget& FabricTargets::begin(FabricTarget& target, int rank) {
  const std::scoped_lock held(mutex_);
  ActiveTarget* active = target.active;
  if (active == nullptr) {
    std::unique_ptr<ActiveTarget> object;
    if (spare_.empty()) {
      object = std::make_unique<ActiveTarget>();
    } else {
      object = std::move(spare_.back());
      spare_.pop_back();
    }
    active = object.get();
    active->towards(rank);
    active->target = &target;
    active->rank = rank;
    active->order = TargetOrder(target.expects_burst != 0);
    active->place = active_.size();
    target.active = active;
    active_.push_back(std::move(object));
    active_count_.store(active_.size(), std::memory_order_release);
  }
  ++active->users;
  return *active;
}

ActiveTarget* FabricTargets::join(FabricTarget& target) {
  const std::scoped_lock held(mutex_);
  if (target.active != nullptr) ++target.active->users;
  return target.active;
}

void FabricTargets::end(ActiveTarget& active) {
  const std::scoped_lock held(mutex_);
  if (--active.users > 0 || active.pinned || !active.done() || active.has_error() || !active.order.at_rest()) return;
  active.target->expects_burst = active.order.expects_burst() ? 1 : 0;
  active.target->active = nullptr;
  const std::size_t place = active.place;
  std::swap(active_[place], active_.back());
  active_[place]->place = place;
  std::unique_ptr<ActiveTarget> ended = std::move(active_.back());
  active_.pop_back();
  constexpr std::size_t kMostRoom = 16;
  if (active_.empty() && active_.capacity() > kMostRoom) active_.shrink_to_fit();
  active_count_.store(active_.size(), std::memory_order_release);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(ended));
}

}  // namespace farside
