// SPDX-License-Identifier: BSD-3-Clause
// `farside explain`: the statistics of a run in plain words.
#include "tools/explain/explain.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <ranges>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/commands.hpp"
#include "tools/common/text.hpp"

namespace farside::tools::explain {
namespace {

// A table whose rows have a weight each. The heaviest comes first; of more than 50 rows the others are only counted.
class SortedTable {
 public:
  explicit SortedTable(std::vector<std::string> header) : table_(std::move(header)) {}
  template <class... Cells>
  void add(double weight, const Cells&... cells) {
    add(weight, std::vector<std::string>{fmt::format("{}", cells)...});
  }
  void add(double weight, std::vector<std::string> row) { rows_.emplace(weight, std::move(row)); }
  std::string text() {
    constexpr std::size_t kMostRows = 50;
    for (const auto& [weight, row] : rows_ | std::views::take(kMostRows)) table_.add(row);
    return table_.text() + (rows_.size() > kMostRows ? fmt::format("and {} more\n", rows_.size() - kMostRows) : "");
  }

 private:
  Table table_;
  std::multimap<double, std::vector<std::string>, std::greater<>> rows_;
};

std::string name_of(const Run& run, std::size_t process) {
  const RankFile& file = run.files[process];
  return fmt::format("{}rank {} on {}", file.job.spawned ? "spawned " : "", file.job.rank, run.processes[process].host);
}

// The calls whose waits have a column.
const std::vector<std::string>& calls() {
  static const std::vector<std::string> all{"lock", "fence", "start", "wait", "complete", "unlock", "flush", "notify"};
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
      done.add(sums.total());
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
      for (std::size_t other = 0; other < run.files.size(); ++other)
        if (run.files[other].job.rank == rank && run.files[other].job.spawned == run.files[i].job.spawned)
          there = name_of(run, other);
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

std::string figures_by(const Run& run, const std::string& by) {
  std::string text;
  for (const Advice& each : advise(run))
    if (each.doubt) text += fmt::format("! {}\n", each.text);
  return text + (by == "rank" ? by_rank : by == "size" ? by_size : by == "pair" ? by_pair : by_site)(run);
}

}  // namespace farside::tools::explain

// ---- the command ----

namespace farside::tools {

void add_explain_command(CLI::App& app, int& exit_code) {
  struct Options {
    std::string prefix, by;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain",
                                         "explain where the time of a run went, and what would help\n"
                                         "farside explain PREFIX [--json] [--by rank|size|pair|site]");
  command->add_option("prefix", options->prefix, "value of FARSIDE_STATS, or one of its files, PREFIX.RANK.json")
      ->required();
  command->add_flag("--json", options->json, "print the advice as JSON");
  command
      ->add_option("--by", options->by,
                   "print figures by rank, by size of the operations, by pair of origin and target, or by call site "
                   "(recorded with FARSIDE_SITES=on)")
      ->check(CLI::IsMember({"rank", "size", "pair", "site"}))
      ->excludes("--json");
  command->footer(
      "Run the program with FARSIDE_STATS=PREFIX set for all ranks, for instance by\n"
      "  farside run -n 4 --set FARSIDE_STATS=/tmp/s -- ./program; farside explain /tmp/s");
  command->callback([options, &exit_code] {
    const explain::Run run = explain::read(options->prefix);
    if (options->json) {
      nlohmann::json list = nlohmann::json::array();
      for (const explain::Advice& each : explain::advise(run))
        list.push_back({{"rule", each.rule}, {"windows", each.kind}, {"seconds", each.weight}, {"text", each.text}});
      fmt::print("{}\n", json_text(list, 2));
    } else {
      fmt::print("{}", options->by.empty() ? in_words(run) : figures_by(run, options->by));
    }
    exit_code = 0;
  });
}

}  // namespace farside::tools
