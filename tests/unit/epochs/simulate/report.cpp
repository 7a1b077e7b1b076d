// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/epochs/simulate/report.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <sys/wait.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/text.hpp"

namespace farside::simulate {
namespace {

std::string count(double value) { return value < 100 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value); }
std::string time(double microseconds) { return tools::with_unit(microseconds, bench::Unit::kMicroseconds); }
std::string_view name(Arrival arrival) { return arrival == Arrival::kOnce ? "once" : "steady"; }
bool whole(const Run& run) { return run.figures.acquisitions == run.figures.asked; }

std::string served(const Run& run) {
  if (whole(run)) return "all";
  const double share = static_cast<double>(run.figures.acquisitions) / static_cast<double>(run.figures.asked);
  return fmt::format("{:.1f}%{}", 100 * share, run.figures.stuck ? " STUCK" : "");
}

struct Column {
  std::string_view key;
  double (*value)(const Run&);
};
// The columns of JSON and CSV behind the settings.
constexpr Column kColumns[] = {
    {"acquisitions", [](const Run& r) { return static_cast<double>(r.figures.acquisitions); }},
    {"asked", [](const Run& r) { return static_cast<double>(r.figures.asked); }},
    {"stuck", [](const Run& r) { return r.figures.stuck ? 1.0 : 0.0; }},
    {"locks", [](const Run& r) { return static_cast<double>(r.figures.locks); }},
    {"contended", [](const Run& r) { return static_cast<double>(r.figures.contended); }},
    {"operations_mean", [](const Run& r) { return r.figures.operations.mean; }},
    {"operations_p99", [](const Run& r) { return r.figures.operations.p99; }},
    {"operations_max", [](const Run& r) { return r.figures.operations.max; }},
    {"operations_contended_mean", [](const Run& r) { return r.figures.contended_mean; }},
    {"operations_contended_mean_at_global_lock", [](const Run& r) { return r.figures.contended_mean_at_global_lock; }},
    {"round_trips_mean", [](const Run& r) { return r.figures.round_trips.mean; }},
    {"round_trips_max", [](const Run& r) { return r.figures.round_trips.max; }},
    {"looks_mean", [](const Run& r) { return r.figures.probes.mean; }},
    {"looks_max", [](const Run& r) { return r.figures.probes.max; }},
    {"waiting_us_mean", [](const Run& r) { return r.figures.waiting.mean; }},
    {"waiting_us_p99", [](const Run& r) { return r.figures.waiting.p99; }},
    {"waiting_us_max", [](const Run& r) { return r.figures.waiting.max; }},
    {"overtaken_max", [](const Run& r) { return static_cast<double>(r.figures.overtaken); }},
    {"overtaken_bound", [](const Run& r) { return static_cast<double>(r.figures.most_overtaken); }},
    {"slowest_to_fastest", [](const Run& r) { return r.figures.slowest_to_fastest; }},
    {"hot_spot_operations", [](const Run& r) { return static_cast<double>(r.figures.hot_spot); }},
    {"bytes_per_rank", [](const Run& r) { return static_cast<double>(r.figures.bytes_per_rank); }},
    {"bytes_of_queue", [](const Run& r) { return static_cast<double>(r.figures.bytes_of_queue); }},
    {"simulated_seconds", [](const Run& r) { return r.figures.seconds; }},
    {"violations", [](const Run& r) { return static_cast<double>(r.figures.violations); }},
};

const std::map<std::string_view, std::string_view> kColours = {{"farside", "#0060ad"}, {"polling", "#d95f02"},
                                                               {"queue", "#606060"},   {"mcs", "#1b9e77"},
                                                               {"rma-rw", "#7570b3"},  {"declock", "#e7298a"}};

}  // namespace

std::string table(const std::vector<Run>& runs) {
  tools::Table result({"ranks arrival readers",
                       "protocol",
                       "served",
                       "operations",
                       "contended",
                       "at global lock",
                       "max",
                       "trips",
                       "max",
                       "looks",
                       "max",
                       "waiting",
                       "p99",
                       "max",
                       "overtaken",
                       "bound",
                       "slow/fast",
                       "hot spot",
                       "bytes",
                       "in all"});
  std::string last;
  for (const Run& run : runs) {
    const Settings& s = run.settings;
    const Figures& f = run.figures;
    const std::string mix =
        fmt::format("{} {} {}% {}", s.ranks, name(s.arrival), s.readers, s.lock_all ? "lock_all" : "");
    result.add(mix == last ? "" : mix, run.protocol, served(run), count(f.operations.mean),
               f.contended == 0 ? "-" : count(f.contended_mean),
               f.contended_at_global_lock == 0 ? "-" : count(f.contended_mean_at_global_lock), f.operations.max,
               count(f.round_trips.mean), f.round_trips.max, count(f.probes.mean), f.probes.max, time(f.waiting.mean),
               time(f.waiting.p99), time(f.waiting.max), f.overtaken,
               run.protocol == "farside" ? fmt::to_string(f.most_overtaken) : "-",
               f.slowest_to_fastest > 0 ? count(f.slowest_to_fastest) : "-", f.hot_spot,
               f.bytes_of_queue == 0 ? fmt::to_string(f.bytes_per_rank)
                                     : fmt::format("{} + {}", f.bytes_per_rank, f.bytes_of_queue),
               time(f.seconds * 1e6));
    if (f.violations > 0) result.add(fmt::format("  NOT EXCLUSIVE {} times", f.violations));
    last = mix;
  }
  return result.text();
}

nlohmann::ordered_json to_json(const std::vector<Run>& runs) {
  nlohmann::ordered_json result = nlohmann::ordered_json::array();
  for (const Run& run : runs) {
    const Settings& s = run.settings;
    nlohmann::ordered_json one{{"protocol", run.protocol},
                               {"ranks", s.ranks},
                               {"targets", s.targets},
                               {"arrival", name(s.arrival)},
                               {"readers", s.readers},
                               {"lock_all", s.lock_all},
                               {"rounds", s.rounds},
                               {"section_ns", s.section},
                               {"load", s.load},
                               {"seed", s.seed},
                               {"latency_ns", s.network.latency},
                               {"jitter", s.network.jitter},
                               {"service_ns", s.network.service},
                               {"hand_off_ns", s.network.hand_off},
                               {"busy", s.network.busy},
                               {"busy_for_ns", s.network.busy_for},
                               {"ranks_per_node", s.network.ranks_per_node},
                               {"near_hand_offs", s.network.near_hand_offs},
                               {"node_latency_ns", s.network.node_latency}};
    for (const Column& column : kColumns) one[std::string(column.key)] = column.value(run);
    result.push_back(std::move(one));
  }
  return result;
}

std::string to_csv(const std::vector<Run>& runs) {
  std::string result = "protocol,ranks,arrival,readers,lock_all,rounds,seed";
  for (const Column& column : kColumns) result += fmt::format(",{}", column.key);
  result += '\n';
  for (const Run& run : runs) {
    const Settings& s = run.settings;
    result += fmt::format("{},{},{},{},{},{},{}", run.protocol, s.ranks, name(s.arrival), s.readers, s.lock_all,
                          s.rounds, s.seed);
    for (const Column& column : kColumns) result += fmt::format(",{}", column.value(run));
    result += '\n';
  }
  return result;
}

std::string plot(const std::vector<Run>& runs, const std::string& file) {
  if (std::system("command -v gnuplot > /dev/null 2>&1") != 0) return "gnuplot is not installed (Debian: gnuplot-nox)";
  const bool over_ranks =
      std::ranges::any_of(runs, [&](const Run& r) { return r.settings.ranks != runs.front().settings.ranks; });
  // A line per protocol (and mix) with its points (x, operations, waiting), by kind of arrival.
  std::map<Arrival, std::map<std::pair<std::string, int>, std::string>> lines;
  std::set<int> mixes;
  for (const Run& run : runs) {
    // The operations and times of a stopped run are unknown.
    if (run.settings.lock_all || !whole(run)) continue;
    const int mix = over_ranks ? run.settings.readers : 0;
    mixes.insert(mix);
    lines[run.settings.arrival][{run.protocol, mix}] +=
        fmt::format("{} {} {}\n", over_ranks ? run.settings.ranks : run.settings.readers, run.figures.operations.mean,
                    run.figures.waiting.max);
  }
  if (lines.empty()) return "nothing to plot: lock_all only, or no run came to its end";
  std::size_t most_lines = 0;
  int block = 0;
  std::string data, plots;
  for (const auto& [arrival, by_line] : lines) {
    most_lines = std::max(most_lines, by_line.size());
    std::array<std::vector<std::string>, 2> panels;
    for (const auto& [line, points] : by_line) {
      const auto& [protocol, readers] = line;
      data += fmt::format("$d{} << EOD\n{}EOD\n", block, points);
      // A colour per protocol, a mark per mix.
      const auto mark = std::distance(mixes.begin(), mixes.find(readers));
      for (std::size_t panel = 0; panel < panels.size(); ++panel) {
        panels[panel].push_back(
            fmt::format("$d{} using 1:{} with linespoints lw 2 ps 1.2 lc rgb '{}' dt {} pt {} title '{}'", block,
                        2 + panel, kColours.at(protocol), 1 + mark % 5, 4 + mark % 9,
                        over_ranks ? fmt::format("{}, {}% readers", protocol, readers) : protocol));
      }
      ++block;
    }
    static constexpr const char* kTitles[] = {"remote operations per acquisition, mean", "longest waiting, us"};
    for (std::size_t panel = 0; panel < panels.size(); ++panel) {
      plots += fmt::format("set title '{}'\nset ylabel '{}'\nplot {}\n",
                           arrival == Arrival::kOnce ? "all at once" : "steady", kTitles[panel],
                           fmt::join(panels[panel], ", "));
    }
  }
  FILE* gnuplot = popen("gnuplot", "w");
  if (gnuplot == nullptr) return "gnuplot does not start";
  fmt::print(gnuplot,
             "set terminal {} size 1200,1000\nset output '{}'\n{}set logscale y\nset grid\n"
             "set key below horizontal maxcols 3 spacing 1.2\nset bmargin {}\nset xlabel '{}'\n{}\n"
             "set multiplot layout {},2\n{}unset multiplot\n",
             file.ends_with(".svg") ? "svg" : "pngcairo", file, data, 5 + (most_lines + 2) / 3,
             over_ranks ? "ranks" : "readers, %", over_ranks ? "set logscale x 2" : "set xrange [-2:102]", lines.size(),
             plots);
  const int status = pclose(gnuplot);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "gnuplot failed";
}

}  // namespace farside::simulate
