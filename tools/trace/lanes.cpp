// SPDX-License-Identifier: BSD-3-Clause
#include "tools/trace/lanes.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace farside::tools::trace {
namespace {

// Windows come first, then lanes without a window: operations and flushes, requests served.
enum class Group { kAccess, kExposure, kOperations, kServed };

std::string operations_of(const Epoch& epoch) {
  std::vector<std::string> texts;
  for (const auto& [of, amount] : epoch.operations)
    texts.push_back(fmt::format("{} {} ({}, {} bytes)", amount.count, name(of.second), name(of.first), amount.bytes));
  return fmt::format("{}", fmt::join(texts, ", "));
}

Bar bar_of(const Timeline& timeline, std::size_t index) {
  const Epoch& epoch = timeline.epochs[index];
  const int kind = static_cast<int>(epoch.kind), target = timeline.process_of(epoch.window, epoch.target);
  return {0,         kind,   name(epoch.kind),     epoch.begin, epoch.granted, epoch.closing,
          epoch.end, target, operations_of(epoch), index};
}

Bar bar_of(const Timeline& timeline, const Span& span) {
  Bar bar;
  bar.kind = kFlushBar;
  bar.name = "flush";
  bar.begin = bar.granted = span.begin;
  bar.closing = bar.end = span.end;
  bar.target = timeline.process_of(span.window, span.target);
  if (span.kind == TraceKind::kFlush) return bar;
  const bool served = span.kind == TraceKind::kServed;
  bar.kind = served ? kServedBar : kOperationBar;
  bar.name = served ? "request of another rank" : name(span.what);
  bar.operations = fmt::format("{} ({}, {} bytes)", served ? "request" : bar.name, name(span.route), span.bytes);
  return bar;
}

}  // namespace

Lanes lay_out(const Timeline& timeline) {
  Lanes result;
  // Lanes, and the times until which they are occupied.
  std::map<std::tuple<int, Group, int>, std::vector<std::pair<std::size_t, Nanoseconds>>> groups;
  const auto place = [&](int process, Group group, int window, Bar bar) {
    auto& lanes = groups[{process, group, window}];
    auto free = std::ranges::find_if(lanes, [&](const auto& lane) { return lane.second <= bar.begin; });
    if (free == lanes.end()) {
      std::string name = group == Group::kServed ? "progress" : "operations";
      if (group == Group::kAccess || group == Group::kExposure) {
        name = window < 0 ? "window ?"
                          : fmt::format("{} ({})", timeline.window(window).title(),
                                        trace::name(timeline.window(window).flavor));
        if (group == Group::kExposure) name += " exposed";
      }
      lanes.emplace_back(result.lanes.size(), 0);
      result.lanes.push_back({process, std::move(name)});
      free = std::prev(lanes.end());
    }
    free->second = bar.end;
    bar.lane = free->first;
    result.bars.push_back(std::move(bar));
  };
  for (std::size_t i = 0; i < timeline.epochs.size(); ++i) {
    const Epoch& epoch = timeline.epochs[i];
    place(epoch.process, epoch.kind == EpochKind::kPost ? Group::kExposure : Group::kAccess, epoch.window,
          bar_of(timeline, i));
  }
  for (const Span& span : timeline.spans) {
    place(span.process, span.kind == TraceKind::kServed ? Group::kServed : Group::kOperations, -1,
          bar_of(timeline, span));
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
