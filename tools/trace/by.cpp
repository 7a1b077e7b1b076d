// SPDX-License-Identifier: BSD-3-Clause
// Figures by rank, size, pair and site.
#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "tools/text.hpp"
#include "tools/trace/views.hpp"

namespace farside::tools::trace {
namespace {

// Sums over ranks may exceed the range of Nanoseconds.
std::string shown(double nanoseconds) { return duration(static_cast<Nanoseconds>(std::min(nanoseconds, 9e18))); }
double length(Nanoseconds begin, Nanoseconds end) { return static_cast<double>(end) - static_cast<double>(begin); }

// What one rank, pair or site did, in nanoseconds.
struct Costs {
  double locks = 0, fences = 0, starts = 0, waits = 0, ends = 0, flushes = 0, operations = 0;
  Amount done;
  std::uint64_t calls = 0;
  double all() const { return locks + fences + starts + waits + ends + flushes + operations; }

  void add_begin(const Epoch& epoch) {
    (epoch.kind == EpochKind::kStart ? starts : locks) += length(epoch.begin, epoch.granted);
  }
  void add_end(const Epoch& epoch) {
    double& sum = epoch.kind == EpochKind::kFence ? fences : epoch.kind == EpochKind::kPost ? waits : ends;
    sum += length(epoch.closing, epoch.end);
  }
  void add(const Span& span) {
    (span.kind == TraceKind::kFlush ? flushes : operations) += length(span.begin, span.end);
  }
};

std::string by_rank(const Timeline& timeline) {
  std::map<int, Costs> costs;
  for (const Epoch& epoch : timeline.epochs) {
    Costs& own = costs[epoch.process];
    own.add_begin(epoch);
    own.add_end(epoch);
    ++own.calls;
    for (const auto& [of, amount] : epoch.operations) own.done.add(amount.count, amount.bytes);
  }
  for (const Span& span : timeline.spans) {
    if (span.kind != TraceKind::kServed) costs[span.process].add(span);
  }
  std::map<int, double> others;
  for (const AwaitedProcess& awaited : awaited_processes(timeline))
    others[awaited.process] = static_cast<double>(awaited.by_locks) + static_cast<double>(awaited.by_fences);
  SortedTable table({"waits of", "locks", "fences", "starts", "waits", "unlocks, completes", "flushes",
                     "slow operations", "epochs", "operations", "bytes", "others waited for it"});
  for (std::size_t p = 0; p < timeline.processes.size(); ++p) {
    const Costs& own = costs[static_cast<int>(p)];
    table.add(own.all(), timeline.processes[p].name, shown(own.locks), shown(own.fences), shown(own.starts),
              shown(own.waits), shown(own.ends), shown(own.flushes), shown(own.operations), own.calls, own.done.count,
              own.done.bytes, shown(others[static_cast<int>(p)]));
  }
  return table.text();
}

std::string by_pair(const Timeline& timeline) {
  std::map<std::tuple<int, int, int>, Costs> costs;  // origin, window, target
  for (const Epoch& epoch : timeline.epochs) {
    if (epoch.target < 0) continue;
    Costs& pair = costs[{epoch.process, epoch.window, epoch.target}];
    pair.add_begin(epoch);
    pair.add_end(epoch);
  }
  for (const Epoch& epoch : timeline.epochs) {
    for (const auto& [target, amount] : epoch.by_target)
      costs[{epoch.process, epoch.window, target}].done.add(amount.count, amount.bytes);
  }
  for (const Span& span : timeline.spans) {
    if (span.kind != TraceKind::kServed && span.target >= 0) costs[{span.process, span.window, span.target}].add(span);
  }
  // The same pair of processes may meet in several windows.
  std::map<std::pair<std::string, std::string>, Costs> pairs;
  for (const auto& [key, cost] : costs) {
    const auto& [process, window, target] = key;
    const int there = timeline.process_of(window, target);
    Costs& sum = pairs[{timeline.process(process).name,
                        there >= 0 ? timeline.process(there).name : fmt::format("rank {} of a window", target)}];
    sum.locks += cost.locks;
    sum.ends += cost.ends;
    sum.flushes += cost.flushes;
    sum.operations += cost.operations;
    sum.done.add(cost.done.count, cost.done.bytes);
  }
  if (pairs.empty()) return "No epoch, flush or operation with one target was recorded.\n";
  SortedTable table({"origin", "target", "locks", "unlocks", "flushes", "slow operations", "operations", "bytes"});
  for (const auto& [pair, cost] : pairs) {
    table.add(cost.all(), pair.first, pair.second, shown(cost.locks), shown(cost.ends), shown(cost.flushes),
              shown(cost.operations), cost.done.count, cost.done.bytes);
  }
  return table.text();
}

// "up to 8 B": the power of two that is not smaller.
std::string size_text(std::uint64_t bytes) { return bytes == 0 ? "0 B" : fmt::format("up to {} B", bytes); }
std::uint64_t size_class(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  return bytes == 0 ? 0 : std::bit_ceil(std::min(bytes, kMost));
}

std::string by_size(const Timeline& timeline) {
  struct Sums {
    Amount done;
    double time = 0;
    bool timed = false;
  };
  std::map<std::tuple<std::uint64_t, RouteKind, Counted>, Sums> sums;
  for (const Span& span : timeline.spans) {
    if (span.kind != TraceKind::kOperation) continue;
    Sums& sum = sums[{size_class(span.bytes), span.route, span.what}];
    sum.done.add(1, span.bytes);
    sum.time += length(span.begin, span.end);
    sum.timed = true;
  }
  for (const Epoch& epoch : timeline.epochs) {
    for (const auto& [of, amount] : epoch.operations) {
      // The others have a span each.
      if ((of.first != RouteKind::kMapped && of.first != RouteKind::kSelf) || amount.count == 0) continue;
      sums[{size_class(amount.bytes / amount.count), of.first, of.second}].done.add(amount.count, amount.bytes);
    }
  }
  if (sums.empty()) return "No operation was recorded.\n";
  Table table({"size", "route", "operation", "number", "bytes", "time", "each"});
  bool counted_only = false;
  for (const auto& [key, sum] : sums) {
    const auto& [size, route, what] = key;
    counted_only = counted_only || !sum.timed;
    table.add(size_text(size), name(route), name(what), sum.done.count, sum.done.bytes,
              sum.timed ? shown(sum.time) : "-",
              sum.timed ? shown(sum.time / static_cast<double>(sum.done.count)) : "-");
  }
  return table.text() +
         (counted_only ? "Loads and stores (-) are not timed; their size is the mean of an epoch.\n" : "");
}

std::string by_site(const Timeline& timeline) {
  if (timeline.sites.empty())
    return "No call sites were recorded: run the program with FARSIDE_SITES=on beside FARSIDE_TRACE.\n";
  std::map<int, Costs> costs;
  for (const Epoch& epoch : timeline.epochs) {
    if (epoch.site >= 0) {
      costs[epoch.site].add_begin(epoch);
      ++costs[epoch.site].calls;
    }
    if (epoch.end_site < 0) continue;
    Costs& end = costs[epoch.end_site];
    end.add_end(epoch);
    ++end.calls;
    for (const auto& [of, amount] : epoch.operations) end.done.add(amount.count, amount.bytes);
  }
  for (const Span& span : timeline.spans) {
    if (span.site < 0) continue;
    costs[span.site].add(span);
    ++costs[span.site].calls;
  }
  SortedTable table(
      {"call site", "calls", "locks", "fences", "starts", "waits", "unlocks, completes", "flushes", "slow operations"});
  for (const auto& [site, cost] : costs) {
    table.add(cost.all(), timeline.sites[static_cast<std::size_t>(site)], cost.calls, shown(cost.locks),
              shown(cost.fences), shown(cost.starts), shown(cost.waits), shown(cost.ends), shown(cost.flushes),
              shown(cost.operations));
  }
  return table.text();
}

}  // namespace

std::string figures_by(const Timeline& timeline, By by) {
  switch (by) {
    case By::kRank: return by_rank(timeline);
    case By::kSize: return by_size(timeline);
    case By::kPair: return by_pair(timeline);
    case By::kSite: break;
  }
  return by_site(timeline);
}

}  // namespace farside::tools::trace
