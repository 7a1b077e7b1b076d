// SPDX-License-Identifier: BSD-3-Clause
#include "tools/trace/page.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "pages.hpp"
#include "tools/text.hpp"
#include "tools/trace/lanes.hpp"
#include "tools/trace/summary.hpp"

namespace farside::tools::trace {
namespace {

using nlohmann::json;

constexpr std::size_t kMostWaits = 1000;

// The names of the kinds of bars in page.html: those of epochs, then these.
enum class BarKind { kFlush = 6, kOperation = 7, kServed = 8 };

double us(Nanoseconds time) { return static_cast<double>(time) * 1e-3; }

std::string operations_of(const Epoch& epoch) {
  std::map<std::pair<Counted, RouteKind>, std::pair<std::uint64_t, std::uint64_t>> sums;
  for (const Counts& counts : epoch.counts) {
    auto& [count, bytes] = sums[{counts.what, counts.route}];
    count += counts.count;
    bytes += counts.bytes;
  }
  std::string text;
  for (const auto& [which, sum] : sums) {
    text += fmt::format("{}{} {} ({}, {} bytes)", text.empty() ? "" : ", ", sum.first,
                        kCountedNames[static_cast<std::size_t>(which.first)],
                        kRouteNames[static_cast<std::size_t>(which.second)], sum.second);
  }
  return text;
}

}  // namespace

void write_page(std::ostream& out, const Timeline& timeline, std::size_t most_bars) {
  const Lanes lanes = lay_out(timeline);
  std::vector<LockWait> waits = lock_waits(timeline);
  std::erase_if(waits, [](const LockWait& wait) { return wait.holders.empty(); });
  if (waits.size() > kMostWaits) waits.resize(kMostWaits);

  const auto length = [&](const Bar& bar) {
    if (bar.is_span) return timeline.spans[bar.epoch].end - timeline.spans[bar.epoch].begin;
    return timeline.epochs[bar.epoch].end - timeline.epochs[bar.epoch].begin;
  };
  std::set<std::size_t> wanted;  // epochs that the waits mention
  for (const LockWait& wait : waits) {
    wanted.insert(wait.epoch);
    for (const LockWait::Holder& holder : wait.holders) wanted.insert(holder.epoch);
  }
  Nanoseconds shortest = 0;
  if (lanes.bars.size() > most_bars) {
    std::vector<Nanoseconds> lengths;
    for (const Bar& bar : lanes.bars) lengths.push_back(length(bar));
    std::ranges::nth_element(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(most_bars), std::ranges::greater());
    shortest = lengths[most_bars] + 1;
  }

  json data;
  for (const Process& process : timeline.processes) data["processes"].push_back({process.name, process.host});
  data["lanes"] = json::array();
  for (const Lane& lane : lanes.lanes) data["lanes"].push_back({lane.process, lane.name});
  data["bars"] = json::array();
  std::map<std::size_t, std::size_t> bar_of;
  std::size_t left_out = 0;
  for (const Bar& bar : lanes.bars) {
    if (length(bar) < shortest && (bar.is_span || !wanted.contains(bar.epoch))) {
      ++left_out;
      continue;
    }
    if (bar.is_span) {
      const Span& span = timeline.spans[bar.epoch];
      const BarKind kind = span.kind == TraceKind::kFlush    ? BarKind::kFlush
                           : span.kind == TraceKind::kServed ? BarKind::kServed
                                                             : BarKind::kOperation;
      const std::string text =
          kind == BarKind::kFlush
              ? ""
              : fmt::format("{} ({}, {} bytes)",
                            kind == BarKind::kServed ? "request" : kCountedNames[static_cast<std::size_t>(span.what)],
                            kRouteNames[static_cast<std::size_t>(span.route)], span.bytes);
      data["bars"].push_back({bar.lane, static_cast<int>(kind), us(span.begin), us(span.begin), us(span.end),
                              us(span.end), timeline.process_of(span.window, span.target), text});
      continue;
    }
    const Epoch& epoch = timeline.epochs[bar.epoch];
    bar_of[bar.epoch] = data["bars"].size();
    data["bars"].push_back({bar.lane, static_cast<int>(epoch.kind), us(epoch.begin), us(epoch.granted),
                            us(epoch.closing), us(epoch.end), timeline.process_of(epoch.window, epoch.target),
                            operations_of(epoch)});
  }
  data["waits"] = json::array();
  for (const LockWait& wait : waits) {
    json holders = json::array();
    for (const LockWait::Holder& holder : wait.holders)
      holders.push_back({bar_of.at(holder.epoch), us(holder.meanwhile)});
    data["waits"].push_back({{"bar", bar_of.at(wait.epoch)},
                             {"us", us(wait.waited)},
                             {"holders", holders},
                             {"words", in_words(timeline, wait)}});
  }
  data["length"] = us(timeline.length);
  data["left_out"] = left_out;
  data["summary"] = summary(timeline);

  out << page_with(kTracePage, data.dump());
}

}  // namespace farside::tools::trace
