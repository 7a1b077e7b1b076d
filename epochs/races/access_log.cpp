// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/races/access_log.hpp"

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
    if (may_conflict(entry.kind, kind)) continue;
    return Conflict{entry.name,
                    entry.target,
                    entry.number,
                    {std::max(first, range.first), std::min(entry.last, range.last)},
                    entry.requested};
  }
  return std::nullopt;
}

std::optional<AccessLog::Conflict> AccessLog::at_target(ByteRange range) const {
  const AccessKind kind = kind_at_target();
  if (const auto target = targets_.find(operation_.target); target != targets_.end()) {
    if (auto conflict = find(target->second.others, range, kind)) return conflict;
    if (auto conflict = find(target->second.fetches, range, kind)) return conflict;
  }
  for (const auto& [number, requested] : requested_) {
    if (requested.target != operation_.target) continue;
    if (auto conflict = find(requested.at_target, range, kind)) return conflict;
  }
  return std::nullopt;
}

std::optional<AccessLog::Conflict> AccessLog::in_memory(ByteRange range, LocalUse use) const {
  if (auto conflict = find(memory_, range, kind_of(use))) return conflict;
  for (const auto& [number, requested] : requested_) {
    if (auto conflict = find(requested.memory, range, kind_of(use))) return conflict;
  }
  return std::nullopt;
}

// Adds the bytes that no entry covers yet. For all other bytes the earlier entry represents both accesses.
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
  const Entry added = entry(kind_at_target());
  if (operation_.requested) return add(requested().at_target, range, added);
  Target& target = targets_[operation_.target];
  add(operation_.use == Use::kFetch ? target.fetches : target.others, range, added);
}

void AccessLog::add_in_memory(ByteRange range, LocalUse use) {
  add(operation_.requested ? requested().memory : memory_, range, entry(kind_of(use)));
}

void AccessLog::completed(int target) {
  targets_.erase(target);
  std::erase_if(memory_, [&](const auto& range) { return range.second.target == target; });
  std::erase_if(requested_, [&](const auto& each) { return each.second.target == target; });
}

void AccessLog::completed_all() {
  targets_.clear();
  memory_.clear();
  requested_.clear();
}

void AccessLog::join_others(const Requested& requested) {
  for (const auto& [first, entry] : requested.at_target) {
    if (!entry.answered) add(targets_[requested.target].others, {first, entry.last}, entry);
  }
}

void AccessLog::locally_completed(int target) {
  std::erase_if(memory_, [&](const auto& range) { return range.second.target == target; });
  if (const auto found = targets_.find(target); found != targets_.end()) {
    found->second.fetches.clear();
    std::erase_if(found->second.others, [](const auto& range) { return range.second.answered; });
  }
  for (const auto& [number, requested] : requested_) {
    if (requested.target == target) join_others(requested);
  }
  std::erase_if(requested_, [&](const auto& each) { return each.second.target == target; });
}

void AccessLog::request_completed(std::uint64_t number) {
  const auto found = requested_.find(number);
  if (found == requested_.end()) return;
  join_others(found->second);
  requested_.erase(found);
}

}  // namespace farside::epochs
