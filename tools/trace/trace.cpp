// SPDX-License-Identifier: BSD-3-Clause
// The texts of `farside trace`.
#include "tools/trace/trace.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <ranges>
#include <stdexcept>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/common/commands.hpp"
#include "tools/common/text.hpp"

namespace farside::tools::trace {
namespace {

constexpr std::size_t kMostLines = 10;
constexpr std::size_t kMostHolders = 6;

std::string name_of(const Timeline& timeline, int window, int target) {
  if (target < 0) return "all";
  const int process = timeline.process_of(window, target);
  return process >= 0 ? timeline.process(process).name : fmt::format("rank {} of the window", target);
}

const std::string& process_name(const Timeline& timeline, std::size_t epoch) {
  return timeline.process(timeline.epochs[epoch].process).name;
}

std::string header(const Timeline& timeline) {
  std::string text = fmt::format("{} processes, {}, {} from the first to the last record\n", timeline.processes.size(),
                                 counted(timeline.windows.size(), "window"), duration(timeline.length));
  if (timeline.hosts.size() == 1 && !timeline.hosts.front().empty())
    text += fmt::format("all on {}\n", timeline.hosts.front());
  for (const std::string& warning : timeline.warnings) text += fmt::format("! {}\n", warning);
  Nanoseconds uncertain = 0;
  for (const Process& process : timeline.processes) {
    if (process.uncertain < 0) {
      text += fmt::format("! the clock of {}{} was not compared with that of {}: its times may be off by anything\n",
                          process.name, timeline.hosts.size() == 1 ? " on " + process.host : "",
                          timeline.processes.front().name);
    }
    uncertain = std::max(uncertain, process.uncertain);
    if (process.lost_epochs + process.lost_operations + process.lost_served > 0) {
      text += fmt::format(
          "! {}: the oldest records were overwritten: {} of epochs and flushes, {} of operations, {} of requests\n",
          process.name, process.lost_epochs, process.lost_operations, process.lost_served);
    }
  }
  if (uncertain > 0)
    text += fmt::format("clocks of different nodes are aligned to {} or better\n", duration(uncertain));
  return text;
}

// Sums over ranks may exceed the range of Nanoseconds.
std::string shown(double nanoseconds) { return duration(static_cast<Nanoseconds>(std::min(nanoseconds, 9e18))); }
double length(Nanoseconds begin, Nanoseconds end) { return static_cast<double>(end) - static_cast<double>(begin); }

std::string epochs(const Timeline& timeline) {
  if (timeline.totals.empty()) return {};
  Table table({"epoch", "number", "time in them", "of which waiting"});
  for (const auto& [kind, total] : timeline.totals)
    table.add(name(kind), total.count, shown(1e9 * total.seconds), shown(1e9 * total.waited));
  return "\nTime in epochs, of all processes together\n" + table.text();
}

std::string locks(const Timeline& timeline, const std::vector<LockWait>& waits) {
  std::string text = "\nLongest waits for locks\n";
  std::size_t held = 0;
  Nanoseconds free = 0;
  for (const LockWait& wait : waits)
    if (wait.holders.empty())
      free += wait.waited;
    else if (++held <= kMostLines)
      text += "  " + in_words(timeline, wait) + '\n';
  if (held == 0) text += "  nobody waited for a lock that somebody held\n";
  if (held > kMostLines) text += fmt::format("  and {} more\n", held - kMostLines);
  if (held < waits.size()) {
    text += fmt::format("  {} locks that nobody recorded held took {} together: the way to the target and back\n",
                        waits.size() - held, duration(free));
  }
  return text;
}

std::string awaited(const Timeline& timeline) {
  std::string text;
  for (const AwaitedProcess& each : awaited_processes(timeline) | std::views::take(kMostLines))
    text += "  " + in_words(timeline, each) + '\n';
  return text.empty() ? "" : "\nThose that others waited for\n" + text;
}

std::string operations(const Timeline& timeline) {
  Amounts amounts;
  for (const Epoch& epoch : timeline.epochs) {
    for (const auto& [of, amount] : epoch.operations) amounts[of].add(amount.count, amount.bytes);
  }
  if (amounts.empty()) return {};
  Table table({"operations in the epochs recorded", "number", "bytes"});
  for (const auto& [of, amount] : amounts)
    table.add(fmt::format("{}: {}", name(of.first), name(of.second)), amount.count, amount.bytes);
  return '\n' + table.text();
}

std::string targets(const Timeline& timeline) {
  struct Costs {  // in nanoseconds
    double locks = 0, ends = 0, flushes = 0, operations = 0;
    double all() const { return locks + ends + flushes + operations; }
  };
  std::map<std::pair<int, int>, Costs> costs;  // window, target
  for (const Epoch& epoch : timeline.epochs) {
    if (epoch.target < 0) continue;
    Costs& cost = costs[{epoch.window, epoch.target}];
    if (epoch.window >= 0) cost.locks += length(epoch.begin, epoch.granted);
    cost.ends += length(epoch.closing, epoch.end);
  }
  for (const Span& span : timeline.spans) {
    if (span.target < 0) continue;
    Costs& cost = costs[{span.window, span.target}];
    (span.kind == TraceKind::kFlush ? cost.flushes : cost.operations) += length(span.begin, span.end);
  }
  std::erase_if(costs, [](const auto& each) { return each.second.all() == 0; });
  if (costs.empty()) return {};
  Table table({"slowest targets", "locks", "unlocks", "flushes", "operations"});
  std::vector<std::pair<std::pair<int, int>, Costs>> most(costs.begin(), costs.end());
  std::ranges::stable_sort(most, std::ranges::greater(), [](const auto& each) { return each.second.all(); });
  for (const auto& [where, cost] : most | std::views::take(kMostLines)) {
    std::string name = name_of(timeline, where.first, where.second);
    if (where.first >= 0) name += ", " + timeline.window(where.first).title();
    table.add(name, shown(cost.locks), shown(cost.ends), shown(cost.flushes), shown(cost.operations));
  }
  return '\n' + table.text();
}

}  // namespace

std::string duration(Nanoseconds time) {
  if (time <= 0) return "0";
  return with_unit(static_cast<double>(time) * 1e-3, bench::Unit::kMicroseconds);
}

std::string in_words(const Timeline& timeline, const LockWait& wait) {
  const Epoch& epoch = timeline.epochs[wait.epoch];
  const char* kind = epoch.kind == EpochKind::kLockAll      ? "lock_all"
                     : epoch.kind == EpochKind::kLockShared ? "a shared lock"
                                                            : "an exclusive lock";
  std::string text =
      fmt::format("{} waited {} for {}", process_name(timeline, wait.epoch), duration(wait.waited), kind);
  if (epoch.target >= 0) text += fmt::format(" at {}", name_of(timeline, epoch.window, epoch.target));
  text += fmt::format(" ({}, at {}", timeline.window(epoch.window).title(), duration(epoch.begin));
  const auto place = [&](int site) {
    return site < 0 ? std::string() : fmt::format(", in {}", timeline.sites[static_cast<std::size_t>(site)]);
  };
  text += place(epoch.site) + ')';
  if (wait.holders.empty()) return text + ", which nobody recorded held";
  text += ", held by";
  const std::size_t first = wait.holders.size() > kMostHolders ? wait.holders.size() - kMostHolders : 0;
  if (first > 0) text += fmt::format(" {} others, then", first);
  for (std::size_t i = first; i < wait.holders.size(); ++i) {
    const LockWait::Holder& holder = wait.holders[i];
    text += fmt::format("{} {} ({}{})", i > first ? "," : "", process_name(timeline, holder.epoch),
                        duration(holder.meanwhile), place(timeline.epochs[holder.epoch].site));
  }
  return text;
}

std::string in_words(const Timeline& timeline, const AwaitedProcess& awaited) {
  std::string text = timeline.process(awaited.process).name + ": others waited ";
  if (awaited.waits > 0)
    text += fmt::format("{} for locks that it held ({})", duration(awaited.by_locks), counted(awaited.waits, "wait"));
  if (awaited.fences > 0) {
    text += fmt::format("{}{} for it at fences ({})", awaited.waits > 0 ? ", " : "", duration(awaited.by_fences),
                        awaited.fences);
  }
  return text;
}

std::string summary(const Timeline& timeline) {
  return header(timeline) + epochs(timeline) + locks(timeline, lock_waits(timeline)) + awaited(timeline) +
         operations(timeline) + targets(timeline);
}

}  // namespace farside::tools::trace

namespace farside::tools {

void add_trace_command(CLI::App& app, int& exit_code) {
  struct Options {
    std::string prefix, chrome_file, page_file;
    bool summary = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("trace",
                                         "merge the traces of all ranks, and show which rank waited for which\n"
                                         "farside trace PREFIX [-o FILE.json] [--html FILE.html]");
  command->add_option("prefix", options->prefix, "value of FARSIDE_TRACE, or one of its files, PREFIX.RANK.trace")
      ->required();
  command->add_option("-o,--output", options->chrome_file, "write a trace for ui.perfetto.dev and chrome://tracing");
  command->add_option("--html", options->page_file, "write a self-contained HTML page");
  command->add_flag("--summary", options->summary, "print the summary even with an output file");
  command->footer(
      "Run the program with FARSIDE_TRACE=PREFIX set for all ranks, for instance by\n"
      "  farside run -n 4 --set FARSIDE_TRACE=/tmp/t -- ./program\n  farside trace /tmp/t --html t.html");
  command->callback([options, &exit_code] {
    std::vector<std::string> left_out;
    trace::Timeline timeline = trace::merge(trace::read_all(options->prefix, left_out));
    for (const std::string& reason : left_out) timeline.warnings.push_back("left out: " + reason);
    const bool files = !options->chrome_file.empty() || !options->page_file.empty();
    for (const auto& [path, html] : {std::pair(options->chrome_file, false), std::pair(options->page_file, true)}) {
      if (path.empty()) continue;
      std::ofstream file(path, std::ios::binary);
      html ? write_page(file, timeline) : write_chrome(file, timeline);
      file.close();
      if (!file) throw std::runtime_error(fmt::format("cannot write {}", path));
    }
    if (options->summary || !files) print_report(summary(timeline));
    exit_code = 0;
  });
}

}  // namespace farside::tools
