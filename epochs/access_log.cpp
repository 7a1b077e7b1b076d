// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/access_log.hpp"

#include <algorithm>

namespace farside::epochs {
namespace {

constexpr int kPutUse = -1;
constexpr int kGetUse = -2;
constexpr int kReadUse = -3;
constexpr int kWrittenUse = -4;
constexpr int kNothing = -5;  // compatible with nothing

}  // namespace

int AccessLog::use_at_target() const {
  switch (operation_.use) {
    case Use::kPut: return kPutUse;
    case Use::kGet: return kGetUse;
    case Use::kAccumulate: return operation_.basic_type;
  }
  return kPutUse;
}

void AccessLog::begin(const Operation& operation) {
  operation_ = operation;
  ++number_;
}

std::optional<AccessLog::Conflict> AccessLog::find(const Ranges& ranges, ByteRange range, int compatible) {
  auto it = ranges.upper_bound(range.first);
  if (it != ranges.begin() && std::prev(it)->second.last > range.first) --it;
  for (; it != ranges.end() && it->first < range.last; ++it) {
    const auto& [first, entry] = *it;
    if (entry.use == compatible) continue;
    return Conflict{entry.name, entry.target, entry.number,
                    {std::max(first, range.first), std::min(entry.last, range.last)}};
  }
  return std::nullopt;
}

std::optional<AccessLog::Conflict> AccessLog::at_target(ByteRange range) const {
  const auto ranges = targets_.find(operation_.target);
  if (ranges == targets_.end()) return std::nullopt;
  const int use = use_at_target();
  return find(ranges->second, range, use == kPutUse ? kNothing : use);
}

std::optional<AccessLog::Conflict> AccessLog::in_memory(ByteRange range, LocalUse use) const {
  return find(memory_, range, use == LocalUse::kRead ? kReadUse : kNothing);
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
  add(targets_[operation_.target], range, {0, use_at_target(), operation_.name, operation_.target, number_});
}

void AccessLog::add_in_memory(ByteRange range, LocalUse use) {
  add(memory_, range,
      {0, use == LocalUse::kRead ? kReadUse : kWrittenUse, operation_.name, operation_.target, number_});
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
  if (const auto ranges = targets_.find(target); ranges != targets_.end()) {
    std::erase_if(ranges->second, [](const auto& range) { return range.second.use != kPutUse; });
  }
}

}  // namespace farside::epochs
