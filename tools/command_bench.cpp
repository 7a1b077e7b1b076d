// SPDX-License-Identifier: BSD-3-Clause
// `farside bench`: one-sided communication natively and with farside, in alternation, for each runtime found.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tools/bench_run.hpp"
#include "tools/child.hpp"
#include "tools/commands.hpp"
#include "tools/runtime.hpp"
#include "tools/text.hpp"

namespace farside::tools {
namespace {

struct Settings {
  bool demo = false;
  std::vector<std::string> runtimes;
  std::vector<std::string> variants{"native", "node", "fabric"};
  std::string library_folder = default_library_folder();
  std::string json_file;
  std::vector<std::string> measures;
  std::vector<std::string> skip;
  std::string window = "allocate";
  std::string provider = "tcp;ofi_rxm";
  double compute_seconds = 2;
  double timeout_seconds = 60;
  int rounds = 3;
  int ranks = 2;
  std::vector<std::string> launcher_options;
};

// In the order in which they are measured and shown.
constexpr std::array kVariants = {Variant::kNative, Variant::kNode, Variant::kUnchecked, Variant::kFabric};

std::string variant_key(Variant variant) {
  switch (variant) {
    case Variant::kNative: return "native";
    case Variant::kNode: return "node";
    case Variant::kUnchecked: return "unchecked";
    case Variant::kFabric: return "fabric";
  }
  return "";
}

std::vector<std::string> variant_keys() {
  std::vector<std::string> keys;
  for (const Variant variant : kVariants) keys.push_back(variant_key(variant));
  return keys;
}

std::string variant_title(Variant variant, const Settings& settings) {
  switch (variant) {
    case Variant::kNative: return "native";
    case Variant::kNode: return "farside in the node";
    case Variant::kUnchecked: return "farside, unchecked";
    case Variant::kFabric: return "farside over " + settings.provider;
  }
  return "";
}

// All runs of one measure in one variant.
struct Series {
  std::vector<Figure> figures;  // without those below
  std::vector<Figure> slices;   // is_time_slice(): they count only if there is nothing else
  Result bad;                   // the first that was not measured; then it is not tried again

  bool broken() const { return bad.verdict != Verdict::kMeasured; }
  bool measured() const { return !broken() && (!figures.empty() || !slices.empty()); }
  double median() const {
    std::vector<double> medians;
    for (const Figure& figure : figures.empty() ? slices : figures) medians.push_back(figure.median);
    std::sort(medians.begin(), medians.end());
    const std::size_t n = medians.size();
    return n == 0 ? 0 : (medians[(n - 1) / 2] + medians[n / 2]) / 2;
  }
  double fastest() const {
    double least = std::numeric_limits<double>::infinity();
    for (const Figure& figure : figures.empty() ? slices : figures) least = std::min(least, figure.min);
    return least;
  }
  // Not to be relied on: only time slices, or more than a factor of two between the medians of the runs.
  bool doubtful() const {
    const auto [least, most] = std::minmax_element(
        figures.begin(), figures.end(), [](const Figure& a, const Figure& b) { return a.median < b.median; });
    return figures.empty() || most->median > 2 * least->median;
  }
};

struct RuntimeReport {
  Runtime runtime;
  std::string library;  // what the runtime says it is
  std::map<Variant, std::map<std::string_view, Series>> series;
  std::vector<std::string> warnings;
};

// One line per measure; on a terminal one line that is rewritten.
class Progress {
 public:
  Progress(int total, bool rewrites) : total_(std::max(total, 1)), rewrites_(rewrites) {}

  void begin(const std::string& what) {
    current_ = what;
    if (rewrites_) rewrite(fmt::format("{} {} ...", share(), what));
  }
  void end(const std::string& what, const std::string& figure) {
    done_ = std::min(done_ + 1, total_);
    if (rewrites_) {
      rewrite(fmt::format("{} {}: {}", share(), what, figure));
    } else {
      say(fmt::format("{} {}: {}", share(), what, figure));
    }
  }
  void skip() { done_ = std::min(done_ + 1, total_); }
  void tick() {
    if (!rewrites_ || current_.empty()) return;
    static constexpr std::string_view kTurning = "|/-\\";
    turn_ = (turn_ + 1) % kTurning.size();
    rewrite(fmt::format("{} {} {}", share(), current_, kTurning[turn_]));
  }
  void say(const std::string& line) {
    clear();
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  void clear() {
    if (rewrites_) fmt::print("\r\033[K");
    std::fflush(stdout);
  }

 private:
  std::string share() const { return fmt::format("[{:3}%]", 100 * done_ / total_); }
  static void rewrite(const std::string& line) {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    // A line that wraps could not be taken back.
    fmt::print("\r\033[K{}", line.substr(0, known ? size.ws_col - 1U : 79U));
    std::fflush(stdout);
  }
  int total_;
  int done_ = 0;
  bool rewrites_;
  std::string current_;
  std::size_t turn_ = 0;
};

bool stdout_rewrites() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

std::vector<const bench::MeasureInfo*> chosen_measures(const Settings& settings) {
  const auto named = [](const std::vector<std::string>& some, std::string_view name) {
    return std::find(some.begin(), some.end(), name) != some.end();
  };
  std::vector<const bench::MeasureInfo*> result;
  for (const bench::MeasureInfo& info : bench::kCatalogue) {
    const bool wanted =
        settings.measures.empty() ? (!settings.demo || info.demo) : named(settings.measures, info.name);
    if (wanted && !named(settings.skip, info.name)) result.push_back(&info);
  }
  return result;
}

std::vector<Variant> chosen_variants(const Settings& settings) {
  std::vector<Variant> result;
  for (const Variant variant : kVariants) {
    if (std::find(settings.variants.begin(), settings.variants.end(), variant_key(variant)) !=
        settings.variants.end()) {
      result.push_back(variant);
    }
  }
  return result;
}

// Runs all rounds of all variants of one runtime; false if interrupted.
bool measure_runtime(const Settings& settings, const std::vector<Variant>& variants,
                     const std::vector<const bench::MeasureInfo*>& measures, Progress& progress,
                     RuntimeReport& report) {
  int nodes = 1;
  for (int round = 1; round <= settings.rounds; ++round) {
    for (const Variant variant : variants) {
      auto& series = report.series[variant];
      const std::string where = fmt::format("{}, {}, run {} of {}: ", report.runtime.name,
                                            variant_title(variant, settings), round, settings.rounds);
      BenchRequest request;
      request.runtime = report.runtime;
      request.variant = variant;
      for (const auto* info : measures) {
        const bool elsewhere = (info->target == bench::TargetState::kServes && variant != Variant::kFabric) ||
                               (info->target == bench::TargetState::kSpins && variant != Variant::kNode);
        if (elsewhere || series[info->name].broken()) {
          progress.skip();
        } else {
          request.measures.push_back(info);
        }
      }
      if (request.measures.empty()) continue;
      request.provider = settings.provider;
      request.window = settings.window;
      request.compute_seconds = settings.compute_seconds;
      request.timeout_seconds = settings.timeout_seconds;
      request.ranks = settings.ranks;
      request.nodes = nodes;
      request.launcher_options = settings.launcher_options;
      request.on_begin = [&](const bench::MeasureInfo& info) {
        progress.begin(where + std::string(info.title));
      };
      request.on_result = [&](const bench::MeasureInfo& info, const Result& result) {
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
      if (outcome.nodes > 0) nodes = outcome.nodes;
      for (const std::string& warning : outcome.warnings) {
        std::string line = fmt::format("{}: {}", variant_title(variant, settings), warning);
        if (std::find(report.warnings.begin(), report.warnings.end(), line) != report.warnings.end())
          continue;
        progress.say(fmt::format("WARNING: {}: {}", report.runtime.name, line));
        report.warnings.push_back(std::move(line));
      }
      if (outcome.interrupted) return false;
    }
  }
  return true;
}

void print_report(const Settings& settings, const std::vector<Variant>& variants,
                  const std::vector<const bench::MeasureInfo*>& measures, const RuntimeReport& report) {
  const bool native = std::find(variants.begin(), variants.end(), Variant::kNative) != variants.end();
  std::vector<std::string> header{"measure"};
  for (const Variant variant : variants) {
    header.push_back(variant_title(variant, settings));
    if (native && variant != Variant::kNative) header.emplace_back("ratio");
  }
  Table table(header);
  std::map<std::string, std::vector<std::string_view>>
      notes;  // variant and reason: the measures it is true of
  bool any_doubtful = false;
  std::size_t left_out = 0;
  const Series none;
  const auto find = [&](Variant variant, std::string_view name) -> const Series& {
    const auto of_variant = report.series.find(variant);
    if (of_variant == report.series.end()) return none;
    const auto found = of_variant->second.find(name);
    return found == of_variant->second.end() ? none : found->second;
  };
  for (const auto* info : measures) {
    std::vector<std::string> row{std::string(info->title)};
    const Series& base = find(Variant::kNative, info->name);
    for (const Variant variant : variants) {
      const Series& series = find(variant, info->name);
      const bool good = series.measured();
      any_doubtful = any_doubtful || (good && series.doubtful());
      if (good && !series.figures.empty()) left_out += series.slices.size();
      row.push_back(good ? (series.doubtful() ? "~" : "") + with_unit(series.median(), info->unit)
                         : std::string(series.broken() ? verdict_name(series.bad.verdict) : "-"));
      if (native && variant != Variant::kNative) {
        const bool comparable = good && base.measured() && !series.figures.empty() && !base.figures.empty();
        row.push_back(comparable ? ratio(base.median(), series.median(), info->unit) : "-");
      }
      if (series.broken()) {
        notes[fmt::format("{} {}: {}", variant_title(variant, settings), verdict_name(series.bad.verdict),
                          series.bad.reason)]
            .push_back(info->title);
      }
    }
    table.add(std::move(row));
  }
  fmt::print("\n{} ({}), {} ranks, {} windows; median of {} run{}\n\n{}",
             report.library.empty() ? report.runtime.name : report.library, report.runtime.launcher,
             settings.ranks, settings.window == "create" ? "created (malloc memory)" : "allocated",
             settings.rounds, settings.rounds == 1 ? "" : "s", table.text());
  if (any_doubtful) {
    fmt::print(
        "  ~ noise: the runs differ by more than a factor of two, or show nothing but the scheduler's time "
        "slices\n");
  }
  if (left_out > 0) {
    fmt::print("  left out: {} figure{} of runs in which a spinning rank lost its core to another program\n",
               left_out, left_out == 1 ? "" : "s");
  }
  // The same round trip is behind both: this ratio suffers less from a noisy machine than the figures do.
  const Series& round_trip = find(Variant::kFabric, "bare_fetch_add");
  for (const auto* info : measures) {
    const Series& series = find(Variant::kFabric, info->name);
    if (!info->name.starts_with("lock_put_unlock") || !series.measured() || !round_trip.measured()) continue;
    fmt::print("  {}, {}: {:.1f} bare round trips (fetch-add)\n", variant_title(Variant::kFabric, settings),
               info->title, series.median() / round_trip.median());
  }
  for (const auto* info : measures) {
    const Series& checked = find(Variant::kNode, info->name);
    const Series& unchecked = find(Variant::kUnchecked, info->name);
    if (!checked.measured() || !unchecked.measured() || info->unit != bench::Unit::kMicroseconds) continue;
    fmt::print("  {}: what FARSIDE_CHECK=on costs: {:+.1f} ns (medians), {:+.1f} ns (fastest batches)\n", info->title,
               1000 * (checked.median() - unchecked.median()), 1000 * (checked.fastest() - unchecked.fastest()));
  }
  for (const auto& [note, titles] : notes) fmt::print("  {} [{}]\n", note, fmt::join(titles, "; "));
  for (const std::string& warning : report.warnings) fmt::print("  WARNING: {}\n", warning);
}

nlohmann::ordered_json to_json(const Settings& settings,
                               const std::vector<const bench::MeasureInfo*>& measures,
                               const std::vector<RuntimeReport>& reports) {
  utsname system{};
  uname(&system);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char date[32] = "";
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  nlohmann::ordered_json all;
  all["farside_bench"] = 1;  // the version of this format
  all["date"] = date;
  all["machine"] = {{"host", system.nodename},
                    {"processor", processor_name()},
                    {"threads", std::thread::hardware_concurrency()},
                    {"kernel", system.release}};
  all["settings"] = {{"window", settings.window},
                     {"provider", settings.provider},
                     {"rounds", settings.rounds},
                     {"ranks", settings.ranks},
                     {"compute_seconds", settings.compute_seconds},
                     {"launcher_options", settings.launcher_options}};
  all["runtimes"] = nlohmann::ordered_json::array();
  for (const RuntimeReport& report : reports) {
    nlohmann::ordered_json one{{"runtime", report.runtime.name},
                               {"version", report.library},
                               {"launcher", report.runtime.launcher},
                               {"library", report.runtime.library},
                               {"warnings", report.warnings}};
    one["measures"] = nlohmann::ordered_json::array();
    for (const auto* info : measures) {
      nlohmann::ordered_json line{{"measure", info->name}, {"unit", bench::unit_name(info->unit)}};
      for (const auto& [variant, by_name] : report.series) {
        const auto found = by_name.find(info->name);
        if (found == by_name.end()) continue;
        const Series& series = found->second;
        nlohmann::ordered_json value{{"verdict", verdict_name(series.bad.verdict)}};
        if (series.broken()) value["reason"] = series.bad.reason;
        if (series.measured()) value["median"] = series.median();
        value["runs"] = nlohmann::ordered_json::array();
        for (const auto* figures : {&series.figures, &series.slices}) {
          for (const Figure& figure : *figures) {
            value["runs"].push_back({{"median", figure.median},
                                     {"min", figure.min},
                                     {"p90", figure.p90},
                                     {"samples", figure.samples},
                                     {"preempted", figure.preempted},
                                     {"left_out", figures == &series.slices && !series.figures.empty()}});
          }
        }
        line[variant_key(variant)] = std::move(value);
      }
      one["measures"].push_back(std::move(line));
    }
    all["runtimes"].push_back(std::move(one));
  }
  return all;
}

bool write_json(const std::string& file, const nlohmann::ordered_json& json) {
  std::ofstream out(file);
  out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) fmt::print(stderr, "farside bench: cannot write {}: {}\n", file, std::strerror(errno));
  return static_cast<bool>(out);
}

void print_next_steps(const std::vector<RuntimeReport>& reports) {
  const bool any = std::any_of(reports.begin(), reports.end(),
                               [](const RuntimeReport& report) { return !report.runtime.library.empty(); });
  if (any) {
    fmt::print("\nNext, your own program, unchanged:\n  {}/farside run -n 2 -- ./your_program\nor by hand:\n",
               own_folder());
  }
  for (const RuntimeReport& report : reports) {
    if (report.runtime.library.empty()) continue;
    const bool as_root = report.runtime.name == "openmpi" && geteuid() == 0;
    fmt::print("  {}LD_PRELOAD={} {} -n 2 ./your_program\n",
               as_root ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "",
               report.runtime.library, report.runtime.launcher);
  }
  fmt::print("More measures: {}/farside bench; all options: {}/farside bench --help\n", own_folder(),
             own_folder());
}

int bench(const Settings& settings) {
  prepare_for_children();
  const std::vector<const bench::MeasureInfo*> measures = chosen_measures(settings);
  const std::vector<Variant> wanted = chosen_variants(settings);
  if (measures.empty() || wanted.empty()) {
    fmt::print(stderr, "farside bench: nothing to measure\n");
    return 2;
  }
  std::vector<std::string> missing;
  std::vector<Runtime> runtimes = find_runtimes(settings.library_folder, missing);
  if (!settings.runtimes.empty()) {
    runtimes.erase(std::remove_if(runtimes.begin(), runtimes.end(),
                                  [&](const Runtime& runtime) {
                                    return std::find(settings.runtimes.begin(), settings.runtimes.end(),
                                                     runtime.name) == settings.runtimes.end();
                                  }),
                   runtimes.end());
  }
  bool good = true;
  std::vector<RuntimeReport> reports;
  std::map<std::string, std::vector<Variant>> variants;
  int total = 0;
  for (Runtime& runtime : runtimes) {
    if (runtime.benchmark.empty()) {
      missing.push_back(fmt::format("{}: no {}/farside-bench-{} (not built for this runtime)", runtime.name,
                                    own_folder(), runtime.name));
      continue;
    }
    for (const Variant variant : wanted) {
      if (variant == Variant::kNative || !runtime.library.empty()) variants[runtime.name].push_back(variant);
    }
    if (variants[runtime.name].size() < wanted.size()) {
      good = false;
      missing.push_back(
          fmt::format("{}: FARSIDE ITSELF IS NOT MEASURED, there is no {}/libfarside-{}.so (--lib-dir)",
                      runtime.name, settings.library_folder, runtime.name));
      if (variants[runtime.name].empty()) continue;
    }
    total += static_cast<int>(variants[runtime.name].size() * measures.size()) * settings.rounds;
    reports.push_back({std::move(runtime), {}, {}, {}});
  }
  for (const std::string& line : missing) fmt::print("{}\n", line);
  if (reports.empty()) {
    fmt::print(stderr, "farside bench: no MPI runtime to measure\n");
    return 1;
  }
  fmt::print("{} measures, {} run{} each; {}, {} hardware threads\n", measures.size(), settings.rounds,
             settings.rounds == 1 ? "" : "s", processor_name(), std::thread::hardware_concurrency());
  if (double load = 0; getloadavg(&load, 1) == 1 && load > 0.5) {
    fmt::print(
        "Note: this machine is busy (load {:.1f}); figures will suffer, most those of runtimes that spin.\n",
        load);
  }
  std::fflush(stdout);

  Progress progress(total, stdout_rewrites());
  bool whole = true;
  for (RuntimeReport& report : reports) {
    whole = whole && measure_runtime(settings, variants[report.runtime.name], measures, progress, report);
  }
  progress.clear();
  for (const RuntimeReport& report : reports) {
    print_report(settings, variants[report.runtime.name], measures, report);
    good = good && report.warnings.empty();
    for (const auto& [variant, by_name] : report.series) {
      for (const auto& [name, series] : by_name)
        good = good && (variant == Variant::kNative || !series.broken());
    }
  }
  if (wanted.size() > 1 && wanted.front() == Variant::kNative) {
    fmt::print("\nratio: how many times as fast as native; above 1x farside is faster.\n");
    if (std::find(wanted.begin(), wanted.end(), Variant::kFabric) != wanted.end()) {
      fmt::print(
          "Over {} the data takes the way to another node, here through this machine's own network stack, "
          "while\n"
          "native stays in shared memory: what counts there is that a computing target costs no more than an "
          "idle one.\n",
          settings.provider);
    }
  }
  for (const std::string& line : missing) fmt::print("{}\n", line);
  if (!settings.json_file.empty() && write_json(settings.json_file, to_json(settings, measures, reports))) {
    fmt::print("Figures of all runs: {}\n", settings.json_file);
  }
  if (!whole) {
    fmt::print("Interrupted.\n");
    return 130;
  }
  if (settings.demo) print_next_steps(reports);
  return good ? 0 : 1;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  auto settings = std::make_shared<Settings>();
  std::vector<std::string> names;
  std::string list = "Measures (* in --demo):";
  for (const bench::MeasureInfo& info : bench::kCatalogue) {
    names.emplace_back(info.name);
    list += fmt::format("\n  {:<24} {}{}", info.name, info.title, info.demo ? " *" : "");
  }
  const CLI::Validator a_measure = CLI::IsMember(names).description("NAME,...");
  CLI::App* command = app.add_subcommand(
      "bench", "measure one-sided communication natively and with farside, in alternation, and compare");
  command->add_flag("--demo", settings->demo, "a short selection, and where to go from there");
  command->add_option("--runtime", settings->runtimes, "only these runtimes (default: all found)")
      ->delimiter(',')
      ->check(CLI::IsMember({"openmpi", "mpich"}));
  command
      ->add_option("--variants", settings->variants,
                   "native, node (mapped memory), unchecked (as node, with FARSIDE_CHECK=off), fabric (forced over "
                   "libfabric)")
      ->delimiter(',')
      ->check(CLI::IsMember(variant_keys()))
      ->capture_default_str();
  command->add_option("--measures", settings->measures, "only these")->delimiter(',')->check(a_measure);
  command->add_option("--skip", settings->skip, "all but these")->delimiter(',')->check(a_measure);
  command
      ->add_option("--window", settings->window,
                   "allocate: MPI_Win_allocate; create: MPI_Win_create on malloc memory")
      ->check(CLI::IsMember({"allocate", "create"}))
      ->capture_default_str();
  command->add_option("--runs", settings->rounds, "runs of each variant")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--compute-seconds", settings->compute_seconds,
                   "how long a computing target stays out of MPI")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--timeout", settings->timeout_seconds,
                   "seconds after which a silent measure counts as hung")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command->add_option("-n,--ranks", settings->ranks, "ranks to start; two measure, the others sleep")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  command->add_option("--provider", settings->provider, "libfabric provider of the fabric variant")
      ->capture_default_str();
  command->add_option("--lib-dir", settings->library_folder,
                      "where libfarside-RUNTIME.so are (default: lib beside this command's folder, or where "
                      "they were installed)");
  command
      ->add_option("--launcher-option", settings->launcher_options, "one more word for mpirun (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--json", settings->json_file, "write all figures to this file");
  command->footer(list);
  command->callback([settings, &exit_code] { exit_code = bench(*settings); });
}

}  // namespace farside::tools
