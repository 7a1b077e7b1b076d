// SPDX-License-Identifier: BSD-3-Clause
// The drawings of `farside trace`: Chrome's trace format, and an HTML page.
#include "pages.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/text.hpp"
#include "tools/trace/trace.hpp"

namespace farside::tools::trace {
namespace {

// Arranges a trace in lanes. A process has lanes for the epochs of its windows (several if they overlap), for its
// operations and flushes, and for the requests that its progress thread served.

struct Lane {
  int process;
  std::string name;
};

// The kinds of bars in page.html: those of epochs, then these.
constexpr int kFlushBar = 6, kOperationBar = 7, kServedBar = 8;

// An epoch or a span. A span waits for nothing.
struct Bar {
  std::size_t lane = 0;
  int kind = 0;
  std::string name;  // "lock_shared", "put"
  Nanoseconds begin = 0, granted = 0, closing = 0, end = 0;
  int target = -1;         // process; -1: none, or not known
  std::string operations;  // "12 put (mapped, 96 bytes)"
  std::size_t epoch = 0;   // index in timeline.epochs, if it is an epoch
  int site = -1;           // as Epoch::site

  bool is_epoch() const { return kind < kFlushBar; }
  // The epoch between two fences and, from `closing` on, the second fence.
  bool is_fence() const { return kind == static_cast<int>(EpochKind::kFence); }
};

struct Lanes {
  std::vector<Lane> lanes;  // ordered by process
  std::vector<Bar> bars;
};

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
          epoch.end, target, operations_of(epoch), index,       epoch.site};
}

Bar bar_of(const Timeline& timeline, const Span& span) {
  Bar bar;
  bar.kind = kFlushBar;
  bar.name = span.kind == TraceKind::kNotified ? "wait_notify" : "flush";
  bar.begin = bar.granted = span.begin;
  bar.closing = bar.end = span.end;
  bar.target = timeline.process_of(span.window, span.target);
  bar.site = span.site;
  if (span.kind == TraceKind::kFlush || span.kind == TraceKind::kNotified) return bar;
  const bool served = span.kind == TraceKind::kServed;
  bar.kind = served ? kServedBar : kOperationBar;
  bar.name = served ? "request of another rank" : name(span.what);
  bar.operations = fmt::format("{} ({}, {} bytes)", served ? "request" : bar.name, name(span.route), span.bytes);
  return bar;
}

Lanes lay_out(const Timeline& timeline) {
  using OneLane = std::vector<Bar>;  // one after the other
  std::map<std::tuple<int, Group, int>, std::vector<OneLane>> groups;
  const auto place = [&](int process, Group group, int window, Bar bar) {
    auto& lanes = groups[{process, group, window}];
    auto free = std::ranges::find_if(lanes, [&](const OneLane& lane) { return lane.back().end <= bar.begin; });
    if (free == lanes.end()) free = lanes.emplace(free);
    free->push_back(std::move(bar));
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
  Lanes result;
  for (auto& [key, lanes] : groups) {
    const auto& [process, group, window] = key;
    std::string name = group == Group::kServed ? "progress" : group == Group::kOperations ? "operations" : "window ?";
    if (window >= 0)
      name = fmt::format("{} ({}){}", timeline.window(window).title(), trace::name(timeline.window(window).flavor),
                         group == Group::kExposure ? " exposed" : "");
    for (OneLane& lane : lanes) {
      for (Bar& bar : lane) {
        bar.lane = result.lanes.size();
        result.bars.push_back(std::move(bar));
      }
      result.lanes.push_back({process, name});
    }
  }
  return result;
}

// ---- chrome ----

const std::string kBetweenFences = "between fences";

Json slice(const std::string& name, const char* category, const Lane& lane, const Bar& bar, Nanoseconds begin,
           Nanoseconds end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", lane.process},
          {"tid", bar.lane},
          {"ts", microseconds(begin)},
          {"dur", microseconds(std::max<Nanoseconds>(end - begin, 0))}};
}

}  // namespace

void write_chrome(std::ostream& out, const Timeline& timeline) {
  const Lanes lanes = lay_out(timeline);
  const std::vector<LockWait> waits = lock_waits(timeline);
  std::vector<const LockWait*> wait_of(timeline.epochs.size());
  for (const LockWait& wait : waits) wait_of[wait.epoch] = &wait;

  out << "{\"displayTimeUnit\":\"ns\",\"otherData\":"
      << Json{{"warnings", timeline.warnings}}.dump(-1, ' ', false, Json::error_handler_t::replace)
      << ",\"traceEvents\":[\n";
  const char* separator = "";
  // Names of the program may be no UTF-8.
  const auto add = [&](const Json& event) { out << std::exchange(separator, ",\n") << json_text(event); };
  const auto describe = [&](const char* what, auto process, std::size_t lane, Json arguments) {
    add({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", lane}, {"args", std::move(arguments)}});
  };
  for (std::size_t p = 0; p < timeline.processes.size(); ++p) {
    describe("process_name", p, 0, {{"name", timeline.processes[p].label + " on " + timeline.processes[p].host}});
    describe("process_sort_index", p, 0, {{"sort_index", p}});
  }
  for (std::size_t i = 0; i < lanes.lanes.size(); ++i)
    describe("thread_name", lanes.lanes[i].process, i, {{"name", lanes.lanes[i].name}});
  std::vector<std::size_t> lane_of(timeline.epochs.size());
  for (const Bar& bar : lanes.bars) {
    const Lane& lane = lanes.lanes[bar.lane];
    const char* category = bar.is_epoch() ? "epoch" : bar.kind == kServedBar ? "progress" : "operation";
    // The time between two fences is the program's; the fence itself is a slice below.
    const std::string& title = bar.is_fence() ? kBetweenFences : bar.name;
    Json event = slice(title, category, lane, bar, bar.begin, bar.is_fence() ? bar.closing : bar.end);
    Json& args = event["args"] = Json::object();
    if (bar.target >= 0) args["target"] = timeline.process(bar.target).name;
    if (!bar.operations.empty()) args["operations"] = bar.operations;
    if (bar.site >= 0) args["call site"] = timeline.sites[static_cast<std::size_t>(bar.site)];
    const LockWait* waited = nullptr;
    if (bar.is_epoch()) {
      lane_of[bar.epoch] = bar.lane;
      waited = wait_of[bar.epoch];
    }
    if (waited != nullptr)
      for (const LockWait::Holder& holder : waited->holders)
        args["waited for"].push_back(timeline.process(timeline.epochs[holder.epoch].process).name);
    add(event);
    if (bar.granted > bar.begin) {
      const bool posts = bar.kind == static_cast<int>(EpochKind::kStart);
      Json wait = slice(posts ? "wait for posts" : "wait for lock", "wait", lane, bar, bar.begin, bar.granted);
      if (waited != nullptr) wait["args"] = {{"in words", in_words(timeline, *waited)}};
      add(wait);
    }
    if (bar.end > bar.closing) {
      const char* name = bar.kind == static_cast<int>(EpochKind::kFence)  ? "MPI_Win_fence"
                         : bar.kind == static_cast<int>(EpochKind::kPost) ? "MPI_Win_wait"
                                                                          : "end of epoch";
      add(slice(name, "wait", lane, bar, bar.closing, bar.end));
    }
  }
  // Draws an arrow from the last holder to the waiter.
  std::uint64_t id = 0;
  const auto end_of_arrow = [&](const char* phase, std::size_t epoch, Nanoseconds time) {
    add({{"name", "lock handed off"},
         {"cat", "lock"},
         {"id", id},
         {"ph", phase},
         {"bp", "e"},
         {"pid", timeline.epochs[epoch].process},
         {"tid", lane_of[epoch]},
         {"ts", microseconds(time)}});
  };
  for (const LockWait& wait : waits) {
    if (wait.holders.empty()) continue;
    const Nanoseconds granted = timeline.epochs[wait.epoch].granted;
    const std::size_t from = wait.holders.back().epoch;
    ++id;
    end_of_arrow("s", from, std::min(timeline.epochs[from].closing, granted));
    end_of_arrow("f", wait.epoch, granted);
  }
  out << "\n]}\n";
}

// ---- page ----

constexpr std::size_t kMostWaits = 1000;

void write_page(std::ostream& out, const Timeline& timeline, std::size_t most_bars) {
  const Lanes lanes = lay_out(timeline);
  std::vector<LockWait> waits = lock_waits(timeline);
  std::erase_if(waits, [](const LockWait& wait) { return wait.holders.empty(); });
  if (waits.size() > kMostWaits) waits.resize(kMostWaits);

  std::set<std::size_t> wanted;  // epochs that the waits mention
  for (const LockWait& wait : waits) {
    wanted.insert(wait.epoch);
    for (const LockWait::Holder& holder : wait.holders) wanted.insert(holder.epoch);
  }
  Nanoseconds shortest = 0;
  if (lanes.bars.size() > most_bars) {
    std::vector<Nanoseconds> lengths;
    for (const Bar& bar : lanes.bars) lengths.push_back(bar.end - bar.begin);
    std::ranges::nth_element(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(most_bars), std::ranges::greater());
    shortest = lengths[most_bars] + 1;
  }

  Json data;
  for (const Process& process : timeline.processes) data["processes"].push_back({process.label, process.host});
  data["lanes"] = Json::array();
  for (const Lane& lane : lanes.lanes) data["lanes"].push_back({lane.process, lane.name});
  data["bars"] = Json::array();
  std::map<std::size_t, std::size_t> bar_of;
  std::size_t left_out = 0;
  for (const Bar& bar : lanes.bars) {
    if (bar.end - bar.begin < shortest && !(bar.is_epoch() && wanted.contains(bar.epoch))) {
      ++left_out;
      continue;
    }
    if (bar.is_epoch()) bar_of[bar.epoch] = data["bars"].size();
    const std::string place = bar.site < 0 ? "" : "\nin " + timeline.sites[static_cast<std::size_t>(bar.site)];
    data["bars"].push_back({bar.lane, bar.kind, microseconds(bar.begin), microseconds(bar.granted),
                            microseconds(bar.closing), microseconds(bar.end), bar.target, bar.operations + place});
  }
  data["waits"] = Json::array();
  for (const LockWait& wait : waits) {
    Json holders = Json::array();
    for (const LockWait::Holder& holder : wait.holders)
      holders.push_back({bar_of.at(holder.epoch), microseconds(holder.meanwhile)});
    data["waits"].push_back({{"bar", bar_of.at(wait.epoch)},
                             {"us", microseconds(wait.waited)},
                             {"holders", holders},
                             {"words", in_words(timeline, wait)}});
  }
  data["length"] = microseconds(timeline.length);
  data["left_out"] = left_out;
  data["summary"] = summary(timeline);
  data["culprits"] = Json::array();
  for (const AwaitedProcess& awaited : awaited_processes(timeline)) {
    data["culprits"].push_back({{"process", awaited.process},
                                {"locks", microseconds(awaited.by_locks)},
                                {"fences", microseconds(awaited.by_fences)},
                                {"words", in_words(timeline, awaited)}});
  }
  data["warnings"] = timeline.warnings;

  // Names of the program may be no UTF-8.
  out << page_with(kTracePage, json_text(data));
}

}  // namespace farside::tools::trace
