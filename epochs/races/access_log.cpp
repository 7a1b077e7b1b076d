// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/races/access_log.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farside::epochs {

void AccessLog::begin(const Operation& operation) {
  operation_ = operation;
  ++number_;
}

template <class Which>
std::optional<AccessLog::Conflict> AccessLog::find(ByteRange range, AccessKind kind, Which&& which) const {
  for (const auto& [place, ranges] : places_) {
    if (!which(place)) continue;
    auto it = ranges.upper_bound(range.first);
    if (it != ranges.begin() && std::prev(it)->second.last > range.first) --it;
    for (; it != ranges.end() && it->first < range.last; ++it) {
      const auto& [first, entry] = *it;
      if (may_conflict(entry.kind, kind)) continue;
      const ByteRange common{std::max(first, range.first), std::min(entry.last, range.last)};
      return Conflict{entry.operation.name, place.target, entry.number, common, entry.operation.requested};
    }
  }
  return std::nullopt;
}

std::optional<AccessLog::Conflict> AccessLog::at_target(ByteRange range) const {
  return find(range, kind_at_target(),
              [&](const Place& place) { return place.target == operation_.target && place.where != Where::kMemory; });
}

std::optional<AccessLog::Conflict> AccessLog::in_memory(ByteRange range, LocalUse use) const {
  return find(range, kind_of(use), [](const Place& place) { return place.where == Where::kMemory; });
}

// Adds the bytes that no entry covers yet. For all other bytes the earlier entry represents both accesses.
void AccessLog::add(const Place& place, ByteRange range, const Entry& entry) {
  Ranges& ranges = places_[place];
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
  const Where where = operation_.use == Use::kFetch ? Where::kFetched : Where::kTarget;
  add({operation_.target, where, request()}, range, {0, kind_at_target(), operation_, number_});
}

void AccessLog::add_in_memory(ByteRange range, LocalUse use) {
  add({operation_.target, Where::kMemory, request()}, range, {0, kind_of(use), operation_, number_});
}

void AccessLog::completed(int target) {
  std::erase_if(places_, [&](const auto& each) { return each.first.target == target; });
}

void AccessLog::completed_all() { places_.clear(); }

template <class Which>
void AccessLog::complete_locally(Which&& which) {
  for (auto& [place, ranges] : std::exchange(places_, {})) {
    if (!which(place)) {
      places_[place] = std::move(ranges);
      continue;
    }
    // An update without a result is not complete at the target.
    for (const auto& [first, entry] : ranges) {
      const bool updates = entry.operation.use == Use::kPut || entry.operation.use == Use::kAccumulate;
      if (place.where != Where::kMemory && updates && !entry.operation.answered)
        add({place.target, Where::kTarget, 0}, {first, entry.last}, entry);
    }
  }
}

void AccessLog::locally_completed(int target) {
  complete_locally([&](const Place& place) { return place.target == target; });
}

void AccessLog::request_completed(std::uint64_t number) {
  complete_locally([&](const Place& place) { return place.request == number; });
}

}  // namespace farside::epochs
