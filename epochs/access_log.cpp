// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/access_log.hpp"

#include <algorithm>

namespace farside::epochs {

void AccessLog::begin(const Operation& operation) {
  operation_ = operation;
  ++number_;
}

std::optional<AccessLog::Conflict> AccessLog::find(const Ranges& ranges, ByteRange range, AccessKind kind) {
  auto it = ranges.upper_bound(range.first);
  if (it != ranges.begin() && std::prev(it)->second.last > range.first) --it;
  for (; it != ranges.end() && it->first < range.last; ++it) {
    const auto& [first, entry] = *it;
    if (may_meet(entry.kind, kind)) continue;
    return Conflict{entry.name, entry.target, entry.number,
                    {std::max(first, range.first), std::min(entry.last, range.last)}};
  }
  return std::nullopt;
}

std::optional<AccessLog::Conflict> AccessLog::at_target(ByteRange range) const {
  const auto target = targets_.find(operation_.target);
  if (target == targets_.end()) return std::nullopt;
  if (auto conflict = find(target->second.others, range, kind_at_target())) return conflict;
  return find(target->second.fetches, range, kind_at_target());
}

std::optional<AccessLog::Conflict> AccessLog::in_memory(ByteRange range, LocalUse use) const {
  return find(memory_, range, kind_of(use));
}

// Only what is not covered yet: the earlier entry stands for both.
void AccessLog::add(Ranges& ranges, ByteRange range, const Entry& entry) {
  std::uint64_t from = range.first;
  auto it = ranges.upper_bound(from);
  if (it != ranges.begin() && std::prev(it)->second.last > from) from = std::prev(it)->second.last;
  while (from < range.last) {
    const std::uint64_t to = it == ranges.end() ? range.last : std::min(range.last, it->first);
    if (to > from) {
      Entry part = entry;
      part.last = to;
      ranges.emplace_hint(it, from, part);
    }
    if (it == ranges.end()) return;
    from = std::max(from, it->second.last);
    ++it;
  }
}

void AccessLog::add_at_target(ByteRange range) {
  Target& target = targets_[operation_.target];
  add(operation_.use == Use::kFetch ? target.fetches : target.others, range,
      {0, kind_at_target(), operation_.name, operation_.target, number_});
}

void AccessLog::add_in_memory(ByteRange range, LocalUse use) {
  add(memory_, range, {0, kind_of(use), operation_.name, operation_.target, number_});
}

void AccessLog::completed(int target) {
  targets_.erase(target);
  std::erase_if(memory_, [&](const auto& range) { return range.second.target == target; });
}

void AccessLog::completed_all() {
  targets_.clear();
  memory_.clear();
}

void AccessLog::locally_completed(int target) {
  std::erase_if(memory_, [&](const auto& range) { return range.second.target == target; });
  if (const auto found = targets_.find(target); found != targets_.end()) {
    found->second.fetches.clear();
    std::erase_if(found->second.others, [](const auto& range) { return range.second.kind.use != Use::kPut; });
  }
}

}  // namespace farside::epochs
