// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/mapped/node_targets.hpp"

#include <bit>

namespace farside {

NodeTarget& NodeTargets::add(int rank) {
  NodeTarget& target = targets_.emplace_back();
  target.rank = rank;
  return target;
}

NodeTargetExtra& NodeTargets::make_extra(const NodeTarget& target) {
  if (extra_ == nullptr) extra_ = std::make_unique<std::unique_ptr<NodeTargetExtra>[]>(targets_.size());
  std::unique_ptr<NodeTargetExtra>& extra = extra_[index_of(target)];
  if (extra == nullptr) {
    extra = std::make_unique<NodeTargetExtra>();
    extra->rank = target.rank;
  }
  return *extra;
}

void NodeTargets::arrange() {
  begin_ = targets_.data();
  first_ = static_cast<std::uint32_t>(targets_.front().rank);
  const std::uint32_t distance = targets_.size() > 1 ? static_cast<std::uint32_t>(targets_[1].rank) - first_ : 1;
  bool regular = std::has_single_bit(distance);
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const std::uint64_t expected = first_ + std::uint64_t{i} * distance;
    regular = regular && static_cast<std::uint64_t>(targets_[i].rank) == expected;
  }
  if (regular) {
    shift_ = static_cast<std::uint32_t>(std::countr_zero(distance));
    regular_ = static_cast<std::uint32_t>(targets_.size());
    return;
  }
  irregular_ = std::make_unique<RankIndex>();
  for (std::size_t i = 0; i < targets_.size(); ++i) irregular_->add(rank_of());
}

const NodeTarget* NodeTargets::find_irregular(int rank) const {
  const int at = irregular_->find(rank, rank_of());
  return at < 0 ? nullptr : &targets_[static_cast<std::size_t>(at)];
}

}  // namespace farside
