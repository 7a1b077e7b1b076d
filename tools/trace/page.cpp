// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "pages.hpp"
#include "tools/text.hpp"
#include "tools/trace/lanes.hpp"
#include "tools/trace/views.hpp"

namespace farside::tools::trace {

using nlohmann::json;

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

  json data;
  for (const Process& process : timeline.processes) data["processes"].push_back({process.label, process.host});
  data["lanes"] = json::array();
  for (const Lane& lane : lanes.lanes) data["lanes"].push_back({lane.process, lane.name});
  data["bars"] = json::array();
  std::map<std::size_t, std::size_t> bar_of;
  std::size_t left_out = 0;
  for (const Bar& bar : lanes.bars) {
    if (bar.end - bar.begin < shortest && !(bar.is_epoch() && wanted.contains(bar.epoch))) {
      ++left_out;
      continue;
    }
    if (bar.is_epoch()) bar_of[bar.epoch] = data["bars"].size();
    data["bars"].push_back({bar.lane, bar.kind, microseconds(bar.begin), microseconds(bar.granted),
                            microseconds(bar.closing), microseconds(bar.end), bar.target, bar.operations});
  }
  data["waits"] = json::array();
  for (const LockWait& wait : waits) {
    json holders = json::array();
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
  data["culprits"] = json::array();
  for (const AwaitedProcess& awaited : awaited_processes(timeline)) {
    data["culprits"].push_back({{"process", awaited.process},
                                {"locks", microseconds(awaited.by_locks)},
                                {"fences", microseconds(awaited.by_fences)},
                                {"words", in_words(timeline, awaited)}});
  }
  data["warnings"] = timeline.warnings;

  // Names of the program may be no UTF-8.
  out << page_with(kTracePage, data.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace farside::tools::trace
