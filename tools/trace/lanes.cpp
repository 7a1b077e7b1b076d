// SPDX-License-Identifier: BSD-3-Clause
#include "tools/trace/lanes.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

namespace farside::tools::trace {
namespace {

// Windows come first, then lanes without a window: operations and flushes, requests served.
enum class Group { kAccess, kExposure, kOperations, kServed };

}  // namespace

Lanes lay_out(const Timeline& timeline) {
  Lanes result;
  std::map<std::tuple<int, Group, int>, std::vector<std::pair<std::size_t, Nanoseconds>>>
      groups;  // lanes, and the times until which they are occupied
  const auto place = [&](int process, Group group, int window, Nanoseconds begin, Nanoseconds end, std::size_t what,
                         bool is_span) {
    auto& lanes = groups[{process, group, window}];
    auto free = std::ranges::find_if(lanes, [&](const auto& lane) { return lane.second <= begin; });
    if (free == lanes.end()) {
      std::string name = "progress";
      if (group == Group::kOperations) name = "operations";
      if (group == Group::kAccess || group == Group::kExposure) {
        name = window < 0 ? "window ?"
                          : fmt::format("window {} ({})", timeline.windows[static_cast<std::size_t>(window)].number,
                                        kFlavorNames[static_cast<std::size_t>(
                                            timeline.windows[static_cast<std::size_t>(window)].flavor)]);
        if (group == Group::kExposure) name += " exposed";
      }
      lanes.emplace_back(result.lanes.size(), 0);
      result.lanes.push_back({process, std::move(name)});
      free = std::prev(lanes.end());
    }
    free->second = end;
    result.bars.push_back({free->first, what, is_span});
  };
  for (std::size_t i = 0; i < timeline.epochs.size(); ++i) {
    const Epoch& epoch = timeline.epochs[i];
    place(epoch.process, epoch.kind == EpochKind::kPost ? Group::kExposure : Group::kAccess, epoch.window, epoch.begin,
          epoch.end, i, false);
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    place(span.process, span.kind == TraceKind::kServed ? Group::kServed : Group::kOperations, -1, span.begin, span.end,
          i, true);
  }
  // Lanes are ordered by process, and windows by their first occurrence.
  std::vector<std::size_t> order(result.lanes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t lane) {
    const Lane& each = result.lanes[lane];
    return std::pair(each.process, each.name == "progress" ? 2 : each.name == "operations" ? 1 : 0);
  });
  std::vector<std::size_t> where(order.size());
  std::vector<Lane> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    where[order[i]] = i;
    sorted.push_back(std::move(result.lanes[order[i]]));
  }
  result.lanes = std::move(sorted);
  for (Bar& bar : result.bars) bar.lane = where[bar.lane];
  return result;
}

}  // namespace farside::tools::trace
