// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_driver/session.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tools/text.hpp"

namespace farside::tools {
namespace {

// Returns the number of nodes of the ranks; 0 if the settings do not tell it.
int nodes_of(const BenchSettings& settings) {
  if (!settings.hosts.empty()) {
    std::set<std::string> hosts;
    for (const std::string& entry : split(settings.hosts, ",")) hosts.insert(entry.substr(0, entry.find(':')));
    return static_cast<int>(hosts.size());
  }
  const bool elsewhere = std::ranges::any_of(
      settings.launcher_options, [](const std::string& word) { return word.find("host") != std::string::npos; });
  return settings.launcher.empty() && !elsewhere ? 1 : 0;
}

// What --cluster measures: passive target, with other ranks and while the target computes.
const std::vector<std::string> kBetweenNodes{"put_flush",
                                             "get_flush",
                                             "fetch_and_op",
                                             "lock_put_unlock",
                                             "lock_put_unlock_compute",
                                             "get_compute",
                                             "fetch_and_op_compute",
                                             "contention",
                                             "rate",
                                             "fetch_rate"};

// Whether a measure applies to a variant: bare measures stand beside one variant only, and nodes share no memory.
bool belongs(const bench::MeasureInfo& info, const Variant& variant, int nodes) {
  if (bench::is_bare_fabric(info)) return variant.kind == Variant::Kind::kFabric;
  if (info.target == bench::TargetState::kSpins) return variant.kind == Variant::Kind::kNode && nodes <= 1;
  return true;
}

}  // namespace

std::vector<const bench::MeasureInfo*> chosen_measures(const BenchSettings& settings) {
  // A report has plots, and not all of their points are default measures.
  const std::vector<std::string> plotted{"put_size",       "get_size", "bare_write_size", "bare_read_size",
                                         "bare_copy_size", "progress", "contention",      "rate"};
  const bool report = !settings.html_file.empty() && !settings.demo;
  std::vector<const bench::MeasureInfo*> result;
  for (const bench::MeasureInfo& info : bench::catalogue()) {
    const bool by_default = info.selection == bench::Selection::kDemo ||
                            (info.selection == bench::Selection::kDefault && !settings.demo) ||
                            (report && bench::named(plotted, info));
    const std::vector<std::string>& words =
        settings.measures.empty() && settings.cluster ? kBetweenNodes : settings.measures;
    const bool wanted = words.empty() ? by_default : bench::named(words, info);
    if (wanted && info.ranks <= settings.ranks && !bench::named(settings.skip, info)) result.push_back(&info);
  }
  return result;
}

bool measure_runtime(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                     Progress& progress, RuntimeReport& report) {
  int nodes = nodes_of(settings);
  for (int round = 1; round <= settings.rounds; ++round) {
    for (const Variant* variant : report.variants) {
      auto& series = report.series[variant->key];
      const std::string title = variant->full_title(settings.provider);
      const std::string where =
          fmt::format("{}, {}, run {} of {}: ", report.runtime.name, title, round, settings.rounds);
      BenchRequest request{settings, report.runtime, variant, nodes, {}, {}, {}, {}};
      for (const auto* info : measures) {
        if (!belongs(*info, *variant, nodes) || series[info->name].broken()) {
          progress.skip();
        } else {
          request.measures.push_back(info);
        }
      }
      if (request.measures.empty()) continue;
      request.on_begin = [&](const bench::MeasureInfo& info) { progress.begin(where + std::string(info.title)); };
      request.on_result = [&](const bench::MeasureInfo& info, const MeasureResult& result) {
        const std::string shown = result.verdict == Verdict::kMeasured
                                      ? with_unit(result.figure.median, info.unit)
                                      : fmt::format("{} ({})", verdict_name(result.verdict), result.reason);
        progress.end(where + std::string(info.title), shown);
      };
      request.on_tick = [&] { progress.tick(); };
      progress.begin(where + "starting");
      BenchOutcome outcome = run_benchmark(request);
      for (auto& [name, result] : outcome.results) {
        if (result.verdict == Verdict::kMeasured) {
          Series& one = series[name];
          (is_time_slice(*bench::find_measure(name), result.figure) ? one.slices : one.figures)
              .push_back(result.figure);
        } else {
          series[name].bad = result;
        }
      }
      if (!outcome.library.empty()) report.library = outcome.library;
      if (!outcome.hosts.is_null()) report.hosts = outcome.hosts;
      if (!outcome.taken.provider.empty()) report.taken[variant->key] = outcome.taken;
      if (outcome.nodes > 0) nodes = outcome.nodes;
      if (settings.cluster && outcome.nodes == 1)
        outcome.warnings.emplace_back("ONE NODE: all ranks are on one node, nothing between nodes is measured");
      for (const std::string& warning : outcome.warnings) {
        std::string line = fmt::format("{}: {}", title, warning);
        if (std::ranges::find(report.warnings, line) != report.warnings.end()) continue;
        progress.say(fmt::format("WARNING: {}: {}", report.runtime.name, line));
        report.warnings.push_back(std::move(line));
      }
      if (outcome.interrupted) return false;
    }
  }
  return true;
}

}  // namespace farside::tools
