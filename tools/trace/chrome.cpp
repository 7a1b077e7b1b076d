// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tools/trace/lanes.hpp"
#include "tools/trace/views.hpp"

namespace farside::tools::trace {
namespace {

using nlohmann::json;

const std::string kBetweenFences = "between fences";

json slice(const std::string& name, const char* category, const Lane& lane, const Bar& bar, Nanoseconds begin,
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

  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  const char* separator = "";
  // Names of the program may be no UTF-8.
  const auto add = [&](const json& event) {
    out << std::exchange(separator, ",\n") << event.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  for (std::size_t p = 0; p < timeline.processes.size(); ++p) {
    const Process& process = timeline.processes[p];
    add({{"name", "process_name"},
         {"ph", "M"},
         {"pid", p},
         {"args", {{"name", process.label + " on " + process.host}}}});
    add({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", p}, {"args", {{"sort_index", p}}}});
  }
  for (std::size_t i = 0; i < lanes.lanes.size(); ++i) {
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", lanes.lanes[i].process},
         {"tid", i},
         {"args", {{"name", lanes.lanes[i].name}}}});
  }
  std::vector<std::size_t> lane_of(timeline.epochs.size());
  for (const Bar& bar : lanes.bars) {
    const Lane& lane = lanes.lanes[bar.lane];
    const char* category = bar.is_epoch() ? "epoch" : bar.kind == kServedBar ? "progress" : "operation";
    // What is between two fences is the program's; the fence itself is a slice below.
    const std::string& title = bar.is_fence() ? kBetweenFences : bar.name;
    json event = slice(title, category, lane, bar, bar.begin, bar.is_fence() ? bar.closing : bar.end);
    json& args = event["args"] = json::object();
    if (bar.target >= 0) args["target"] = timeline.process(bar.target).name;
    if (!bar.operations.empty()) args["operations"] = bar.operations;
    const LockWait* waited = nullptr;
    if (bar.is_epoch()) {
      lane_of[bar.epoch] = bar.lane;
      waited = wait_of[bar.epoch];
    }
    if (waited != nullptr) {
      for (const LockWait::Holder& holder : waited->holders)
        args["waited for"].push_back(timeline.process(timeline.epochs[holder.epoch].process).name);
    }
    add(event);
    if (bar.granted > bar.begin) {
      const bool posts = bar.kind == static_cast<int>(EpochKind::kStart);
      json wait = slice(posts ? "wait for posts" : "wait for lock", "wait", lane, bar, bar.begin, bar.granted);
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
  for (const LockWait& wait : waits) {
    if (wait.holders.empty()) continue;
    const std::size_t from = wait.holders.back().epoch;
    const Epoch& holder = timeline.epochs[from];
    const Epoch& waiter = timeline.epochs[wait.epoch];
    json arrow{{"name", "lock handed off"}, {"cat", "lock"}, {"id", ++id}};
    arrow.update({{"ph", "s"},
                  {"pid", holder.process},
                  {"tid", lane_of[from]},
                  {"ts", microseconds(std::min(holder.closing, waiter.granted))}});
    add(arrow);
    arrow.update({{"ph", "f"},
                  {"bp", "e"},
                  {"pid", waiter.process},
                  {"tid", lane_of[wait.epoch]},
                  {"ts", microseconds(waiter.granted)}});
    add(arrow);
  }
  out << "\n]}\n";
}

}  // namespace farside::tools::trace
