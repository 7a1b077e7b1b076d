// SPDX-License-Identifier: BSD-3-Clause
#include "tools/trace/chrome.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/trace/lanes.hpp"
#include "tools/trace/summary.hpp"

namespace farside::tools::trace {
namespace {

using nlohmann::json;

class Events {
 public:
  explicit Events(std::ostream& out) : out_(out) { out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"; }
  void add(const json& event) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << event.dump();
  }
  void end() { out_ << "\n]}\n"; }

 private:
  std::ostream& out_;
  bool first_ = true;
};

double us(Nanoseconds time) { return static_cast<double>(time) * 1e-3; }

json slice(const std::string& name, const char* category, const Lane& lane, std::size_t thread, Nanoseconds begin,
           Nanoseconds end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", lane.process},
          {"tid", thread},
          {"ts", us(begin)},
          {"dur", us(std::max<Nanoseconds>(end - begin, 0))}};
}

}  // namespace

void write_chrome(std::ostream& out, const Timeline& timeline) {
  const Lanes lanes = lay_out(timeline);
  const std::vector<LockWait> waits = lock_waits(timeline);
  std::map<std::size_t, const LockWait*> wait_of;
  for (const LockWait& wait : waits) wait_of[wait.epoch] = &wait;

  Events events(out);
  for (std::size_t p = 0; p < timeline.processes.size(); ++p) {
    const Process& process = timeline.processes[p];
    events.add({{"name", "process_name"},
                {"ph", "M"},
                {"pid", p},
                {"args", {{"name", process.name + " on " + process.host}}}});
    events.add({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", p}, {"args", {{"sort_index", p}}}});
  }
  for (std::size_t i = 0; i < lanes.lanes.size(); ++i) {
    events.add({{"name", "thread_name"},
                {"ph", "M"},
                {"pid", lanes.lanes[i].process},
                {"tid", i},
                {"args", {{"name", lanes.lanes[i].name}}}});
  }
  std::vector<std::size_t> lane_of(timeline.epochs.size());
  for (const Bar& bar : lanes.bars) {
    const Lane& lane = lanes.lanes[bar.lane];
    if (bar.is_span) {
      const Span& span = timeline.spans[bar.epoch];
      const std::string name = span.kind == TraceKind::kFlush    ? "flush"
                               : span.kind == TraceKind::kServed ? "request of another rank"
                                                                 : kCountedNames[static_cast<std::size_t>(span.what)];
      json event =
          slice(name, span.kind == TraceKind::kServed ? "progress" : "operation", lane, bar.lane, span.begin, span.end);
      event["args"] = {{"bytes", span.bytes}, {"route", kRouteNames[static_cast<std::size_t>(span.route)]}};
      if (const int target = timeline.process_of(span.window, span.target); target >= 0) {
        event["args"]["target"] = timeline.processes[static_cast<std::size_t>(target)].name;
      }
      events.add(event);
      continue;
    }
    const Epoch& epoch = timeline.epochs[bar.epoch];
    lane_of[bar.epoch] = bar.lane;
    json event =
        slice(kEpochNames[static_cast<std::size_t>(epoch.kind)], "epoch", lane, bar.lane, epoch.begin, epoch.end);
    json& args = event["args"] = json::object();
    if (const int target = timeline.process_of(epoch.window, epoch.target); target >= 0) {
      args["target"] = timeline.processes[static_cast<std::size_t>(target)].name;
    }
    for (const Counts& counts : epoch.counts) {
      json& sum = args[fmt::format("{} ({})", kCountedNames[static_cast<std::size_t>(counts.what)],
                                   kRouteNames[static_cast<std::size_t>(counts.route)])];
      if (sum.is_null()) sum = 0;
      sum = sum.get<std::uint64_t>() + counts.count;
    }
    const auto waited = wait_of.find(bar.epoch);
    if (waited != wait_of.end() && !waited->second->holders.empty()) {
      json held = json::array();
      for (const LockWait::Holder& holder : waited->second->holders) {
        held.push_back(timeline.processes[static_cast<std::size_t>(timeline.epochs[holder.epoch].process)].name);
      }
      args["waited for"] = held;
    }
    events.add(event);
    if (epoch.granted > epoch.begin) {
      json wait = slice(epoch.kind == EpochKind::kStart ? "wait for posts" : "wait for lock", "wait", lane, bar.lane,
                        epoch.begin, epoch.granted);
      if (waited != wait_of.end()) wait["args"] = {{"in words", in_words(timeline, *waited->second)}};
      events.add(wait);
    }
    if (epoch.end > epoch.closing) {
      const char* name = epoch.kind == EpochKind::kFence  ? "MPI_Win_fence"
                         : epoch.kind == EpochKind::kPost ? "MPI_Win_wait"
                                                          : "end of epoch";
      events.add(slice(name, "wait", lane, bar.lane, epoch.closing, epoch.end));
    }
  }
  // Draws an arrow from the last holder to the waiter.
  std::uint64_t id = 0;
  for (const LockWait& wait : waits) {
    if (wait.holders.empty()) continue;
    const std::size_t from = wait.holders.back().epoch;
    const Epoch& holder = timeline.epochs[from];
    const Epoch& waiter = timeline.epochs[wait.epoch];
    json arrow = {{"name", "lock handed off"}, {"cat", "lock"}, {"id", ++id}};
    arrow.update({{"ph", "s"},
                  {"pid", holder.process},
                  {"tid", lane_of[from]},
                  {"ts", us(std::min(holder.closing, waiter.granted))}});
    events.add(arrow);
    arrow.update(
        {{"ph", "f"}, {"bp", "e"}, {"pid", waiter.process}, {"tid", lane_of[wait.epoch]}, {"ts", us(waiter.granted)}});
    events.add(arrow);
  }
  events.end();
}

}  // namespace farside::tools::trace
