// SPDX-License-Identifier: BSD-3-Clause
// `farside explain`: the statistics of a run in plain words.
#include "tools/explain/explain.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "tools/common/text.hpp"

namespace farside::tools::explain {

namespace {

std::string name_of(const Run& run, std::size_t process) {
  const RankFile& file = run.files[process];
  return fmt::format("{}rank {} on {}", file.job.spawned ? "spawned " : "", file.job.rank, run.processes[process].host);
}

// The calls whose waits have a column.
const std::vector<std::string>& calls() {
  static const std::vector<std::string> all{"lock", "fence", "start", "wait", "complete", "unlock", "flush"};
  return all;
}

std::string by_rank(const Run& run) {
  std::vector<std::string> header{"waits of", "time"};
  header.insert(header.end(), calls().begin(), calls().end());
  for (const char* name : {"slow operations", "operations", "bytes"}) header.emplace_back(name);
  SortedTable table(header);
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    const Process& process = run.processes[i];
    std::vector<std::string> row{name_of(run, i), time_text(process.seconds)};
    double all = 0, slow = 0;
    for (const std::string& call : calls()) {
      double sum = 0;
      for (const auto& [kind, sums] : process.kinds) sum += sums.waits_in(call).seconds;
      row.push_back(time_text(sum));
      all += sum;
    }
    Operations done;
    for (const auto& [kind, sums] : process.kinds) {
      slow += sums.slow_operations.seconds;
      const Operations more = sums.total();
      done.count += more.count;
      done.bytes += more.bytes;
    }
    row.insert(row.end(), {time_text(slow), fmt::to_string(done.count), fmt::to_string(done.bytes)});
    table.add(all + slow, std::move(row));
  }
  return table.text();
}

std::string by_pair(const Run& run) {
  if (std::ranges::all_of(run.processes, [](const Process& process) { return process.targets.empty(); }))
    return "No operation was counted.\n";
  SortedTable table({"origin", "target", "waits", "slow operations", "operations", "bytes"});
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    for (const auto& [rank, target] : run.processes[i].targets) {
      std::string there = rank < 0 ? "others" : fmt::format("rank {}", rank);
      for (std::size_t other = 0; other < run.files.size(); ++other) {
        if (run.files[other].job.rank == rank && run.files[other].job.spawned == run.files[i].job.spawned)
          there = name_of(run, other);
      }
      table.add(target.wait_seconds + target.slow_operation_seconds, name_of(run, i), there,
                time_text(target.wait_seconds), time_text(target.slow_operation_seconds), target.operations.count,
                target.operations.bytes);
    }
  }
  return table.text();
}

std::string by_size(const Run& run) {
  if (run.sizes.empty()) return "No operation was counted.\n";
  Table table({"operation", "size", "number", "bytes", "by system call or fabric", "time", "each"});
  for (const auto& [operation, classes] : run.sizes) {
    for (const auto& [size, sums] : classes) {
      table.add(operation, size == 0 ? "0 B" : fmt::format("up to {} B", size), sums.operations.count,
                sums.operations.bytes, sums.slow, time_text(sums.slow_seconds),
                sums.slow == 0 ? "-" : time_text(sums.slow_seconds / static_cast<double>(sums.slow)));
    }
  }
  return table.text();
}

std::string by_site(const Run& run) {
  if (run.sites.empty())
    return "No call sites were recorded: run the program with FARSIDE_SITES=on beside FARSIDE_STATS.\n";
  SortedTable table({"call site", "call", "calls", "waited", "time", "longest"});
  for (const auto& [site, by_call] : run.sites) {
    for (const auto& [call, sums] : by_call) {
      table.add(sums.waits.seconds, site, call, sums.calls, sums.waits.count, time_text(sums.waits.seconds),
                time_text(sums.waits.longest));
    }
  }
  return table.text();
}

}  // namespace

std::string figures_by(const Run& run, By by) {
  std::string text;
  for (const Advice& each : advise(run)) {
    if (each.rule == kMissingRanks || each.rule == kOversubscribed) text += fmt::format("! {}\n", each.text);
  }
  switch (by) {
    case By::kRank: return text + by_rank(run);
    case By::kSize: return text + by_size(run);
    case By::kPair: return text + by_pair(run);
    case By::kSite: break;
  }
  return text + by_site(run);
}

}  // namespace farside::tools::explain
