// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/driver.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/child.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

using Measures = std::vector<const bench::MeasureInfo*>;

using Kind = Variant::Kind;

// Variables that this command sets for the ranks only.
constexpr std::array<std::string_view, 5> kSetHere = {"LD_PRELOAD", "FARSIDE_STATS", "FARSIDE_TRACE", "FARSIDE_ROUTES",
                                                      "FARSIDE_CHECK"};

constexpr auto kVariants = std::to_array<Variant>({
    {"native", "native", "the runtime by itself", Kind::kNative},
    {"sm", "native osc/sm", "Open MPI's shared memory", Kind::kNative, "sm"},
    {"rdma", "native osc/rdma", "Open MPI's RDMA", Kind::kNative, "rdma"},
    {"ucx", "native osc/ucx", "Open MPI over UCX", Kind::kNative, "ucx"},
    {"pt2pt", "native osc/pt2pt", "Open MPI over its messages", Kind::kNative, "pt2pt"},
    {"node", "farside", "farside with its defaults: mapped memory within a node", Kind::kNode},
    {"unchecked", "farside, unchecked", "as node, with FARSIDE_CHECK=off", Kind::kUnchecked},
    {"fabric", "farside over {}", "farside, forced over libfabric", Kind::kFabric},
});

}  // namespace

std::string Variant::full_title(const std::string& provider) const {
  return fmt::format(fmt::runtime(title), provider);
}

Variables Variant::component_variables() const {
  if (component.empty()) return {};
  if (component != "ucx") return {{"OMPI_MCA_osc", std::string(component)}};
  // osc/ucx needs UCX's pml. Without a NIC both refuse to run unless any device is allowed.
  return {{"OMPI_MCA_osc", "ucx"},
          {"OMPI_MCA_pml", "ucx"},
          {"OMPI_MCA_opal_common_ucx_tls", "any"},
          {"OMPI_MCA_opal_common_ucx_devices", "any"}};
}

Variables variables_of(const Variant& variant, const Runtime& runtime, const std::string& provider, bool one_node) {
  Variables variables;
  const std::string preload = preload_list(variable("LD_PRELOAD"), variant.native() ? "" : runtime.library);
  if (!preload.empty()) variables.emplace_back("LD_PRELOAD", preload);
  for (const auto& [name, value] : current_environment()) {
    const bool is_setting = std::ranges::any_of(settings_table(), [&](const auto& one) { return one.name == name; });
    const bool set_here = std::ranges::find(kSetHere, name) != kSetHere.end() ||
                          (variant.kind == Kind::kFabric && name == "FARSIDE_PROVIDER");
    if (!set_here && (name.starts_with("FI_") || name.starts_with("UCX_") || (is_setting && !variant.native())))
      variables.emplace_back(name, value);
  }
  if (variant.native()) return variables;
  variables.emplace_back("FARSIDE_CHECK", variant.kind == Kind::kUnchecked ? "off" : "on");
  if (variant.kind == Kind::kFabric) {
    variables.emplace_back("FARSIDE_ROUTES", "fabric");
    variables.emplace_back("FARSIDE_PROVIDER", provider);
    // Without this, libfabric takes the first interface that is up, although all ranks are on one machine.
    if (one_node && variable("FI_TCP_IFACE").empty()) variables.emplace_back("FI_TCP_IFACE", "lo");
  }
  return variables;
}

std::vector<const Variant*> variants_named(const std::vector<std::string>& keys) {
  std::vector<const Variant*> result;
  for (const Variant& variant : kVariants)
    if (std::ranges::find(keys, variant.key) != keys.end()) result.push_back(&variant);
  return result;
}

void add_common_options(CLI::App& command, CommonSettings& settings) {
  std::vector<std::string> keys, texts;
  for (const Variant& variant : kVariants) {
    keys.emplace_back(variant.key);
    texts.push_back(fmt::format("{} ({})", variant.key, variant.explanation));
  }
  command.add_option("--runtime", settings.runtimes, "only these runtimes (default: all found)")
      ->delimiter(',')
      ->check(CLI::IsMember({"openmpi", "mpich"}));
  command.add_option("--variants", settings.variants, fmt::format("{}", fmt::join(texts, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(keys))
      ->capture_default_str();
  command.add_option("--provider", settings.provider, "libfabric provider of the fabric variant")
      ->capture_default_str();
  add_launch_options(command, settings.launch, settings.library_folder);
}

// ---- figures ----

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 5> kNames = {"measured", "wrong", "crashed", "failed", "hung"};
  return kNames[static_cast<std::size_t>(verdict)];
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

double Series::median(double Figure::*figure) const {
  std::vector<double> values;
  for (const Figure& run : counted()) values.push_back(run.*figure);
  return median_of(std::move(values));
}

bool Series::doubtful() const {
  if (figures.empty()) return true;
  const auto [least, most] = std::ranges::minmax(figures, {}, &Figure::median);
  return most.median > 2 * least.median;
}

std::string_view noise_mark(const Series& one, const Series& other) {
  return one.doubtful() || other.doubtful() ? kNoiseMark : std::string_view();
}

const Series& RuntimeReport::find(std::string_view variant, std::string_view measure) const {
  static const Series none;
  const auto of_variant = series.find(variant);
  if (of_variant == series.end()) return none;
  const auto found = of_variant->second.find(measure);
  return found == of_variant->second.end() ? none : found->second;
}

// ---- progress ----

namespace {

// One line per measure, with the share of all that is done.
class Progress {
 public:
  explicit Progress(std::size_t total) : total_(std::max<std::size_t>(total, 1)) {}
  void end(const std::string& what, const std::string& result) {
    skip();
    say(fmt::format("[{:3}%] {}: {}", 100 * done_ / total_, what, result));
  }
  void skip() { done_ = std::min(done_ + 1, total_); }
  static void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

 private:
  std::size_t total_;
  std::size_t done_ = 0;
};

// ---- one run of a variant ----

// After so many failed measures and no figure, a native variant is not tried again: each may take `--timeout`.
constexpr std::size_t kMostFailures = 3;

// Time limit of MPI_Finalize and the launcher after the last measure (MPICH 4.0 over UCX's tcp never ends there).
constexpr double kEndSeconds = 10;

// Whether the figure is a scheduler's time slice instead of the time of an operation: another program took a core,
// and two spinning ranks had to share the other one. (An implementation that sleeps or polls for this long yields its
// core voluntarily, and is not counted as preempted.)
bool is_time_slice(const bench::MeasureInfo& info, const Figure& figure) {
  const bool attentive = info.target == bench::TargetState::kInBarrier || info.target == bench::TargetState::kTakesPart;
  return attentive && info.unit == bench::Unit::kMicroseconds && figure.median >= 1000 && figure.preempted >= 0.25;
}

// Returns the measures that may share a run with the first one: measures with threads initialize MPI with
// MPI_THREAD_MULTIPLE, which would slow down the others.
Measures alike(Measures measures) {
  const bool threads = measures.front()->threads;
  std::erase_if(measures, [&](const auto* info) { return info->threads != threads; });
  return measures;
}

MeasureResult verdict_of(const ChildEnd& end, double timeout) {
  // Launchers pass on the signal that ended a rank as exit code 128 + signal.
  const bool passed_on = end.how == ChildEnd::How::kExited && end.code > 128 && end.code < 128 + 65;
  if (passed_on || end.how == ChildEnd::How::kSignalled)
    return {Verdict::kCrashed, {}, strsignal(passed_on ? end.code - 128 : end.code)};
  MeasureResult result{Verdict::kFailed, {}, end_in_words(end)};
  if (end.how == ChildEnd::How::kSilent)
    result = {Verdict::kHung, {}, fmt::format("nothing for {:.0f} s, ended", timeout)};
  if (const std::string lines = telling_lines(end.error_output); !lines.empty()) result.reason += "; " + lines;
  return result;
}

// One run of the benchmark program under a launcher, natively or with farside. A measure that crashes, hangs or gives
// wrong data costs that measure only: the remaining measures are measured in a further run.
class VariantRun {
 public:
  // `nodes`: of the ranks; 0: not known before the run, which sets it.
  VariantRun(const BenchSettings& settings, RuntimeReport& report, const Variant& variant, int round, int& nodes,
             Progress& progress)
      : settings_(settings),
        report_(report),
        variant_(variant),
        nodes_(nodes),
        progress_(progress),
        title_(variant.full_title(settings.provider)),
        where_(fmt::format("{}, {}, run {} of {}: ", report.runtime.name, title_, round, settings.rounds)),
        series_(report.series[variant.key]) {}

  // Returns false if interrupted.
  bool run(Measures measures) {
    left_ = std::move(measures);
    while (!left_.empty())
      if (!start()) return false;
    return true;
  }

 private:
  // Starts the program for the next measures.
  bool start() {
    opened_.clear();
    begun_ = nullptr;
    hello_ = ended_ = false;
    const Measures now = alike(left_);
    ChildRequest child;
    child.arguments = command_for(now);
    child.environment = environment();
    child.silence_seconds = settings_.timeout_seconds + settings_.compute_seconds;
    child.on_line = [&](std::string_view line) {
      take(parse_json_line(line));
      if (ended_) child.silence_seconds = std::min(child.silence_seconds, kEndSeconds);
    };
    const ChildEnd end = run_child(child);
    if (end.how == ChildEnd::How::kInterrupted) return false;
    for (const std::string& line : split(end.error_output, "\n")) {  // the first window has the reason
      const std::size_t at = line.find("the ranks use libfabric ");
      if (passed_over_.empty() && at != std::string::npos) passed_over_ = line.substr(at);
    }
    if (const auto taken = report_.taken.find(variant_.key); taken != report_.taken.end() && !passed_over_.empty())
      taken->second.passed_over = passed_over_;
    const auto is_left = [&](const auto* info) { return std::ranges::find(left_, info) != left_.end(); };
    if (ended_ && end.how == ChildEnd::How::kExited && end.code == 0) {
      if (!variant_.native() && std::ranges::any_of(now, [](const auto* info) { return !bench::is_bare(*info); }))
        check_routes();
      // The run ended well. A measure that the program left out without an error would be retried for ever.
      for (const auto* info : now)
        if (is_left(info)) report(*info, {Verdict::kFailed, {}, "the benchmark did not report it"});
      return true;
    }
    const MeasureResult verdict = verdict_of(end, child.silence_seconds);
    const auto next = std::ranges::find_if(now, is_left);
    if (next == now.end()) {
      warn(fmt::format("after its last measure the program {}: {}", verdict_name(verdict.verdict), verdict.reason));
    } else if (!hello_ || (variant_.native() && done_ == failed_ && failed_ + 1 >= kMostFailures)) {
      // The program failed before its first measure, or in each so far: this cluster does not have the variant.
      for (const auto* info : Measures(left_)) report(*info, verdict);
    } else {
      // If the launcher lost the line that named the measure, it is the first one without a result.
      report(begun_ != nullptr ? *begun_ : **next, verdict);
    }
    return true;
  }

  void take(const Json& line) {
    if (!line.is_object()) return;  // a runtime may print to stdout too
    if (line.contains("hello")) {
      hello_ = true;
      report_.library = line.value("library", "");
      report_.hosts = line.value("hosts", Json::array());
      nodes_ = line.value("nodes", 1);
      if (settings_.cluster && nodes_ == 1)
        warn("ONE NODE: all ranks are on one node, nothing between nodes is measured");
    } else if (line.contains("begin")) {
      begun_ = bench::find_measure(line.value("begin", ""));
    } else if (line.contains("opened")) {
      opened_.insert(line.value("opened", ""));
      if (const std::string provider = line.value("provider", ""); !provider.empty())
        report_.taken[variant_.key] = {provider, line.value("device", ""), passed_over_};
    } else if (const auto* info = bench::find_measure(line.value("measure", "")); info != nullptr) {
      begun_ = nullptr;
      const Figure figure{line.value("median", 0.0), line.value("mean", 0.0),   line.value("p90", 0.0),
                          line.value("p99", 0.0),    line.value("samples", 0L), line.value("preempted", 0.0)};
      report(*info, line.contains("error") ? MeasureResult{Verdict::kWrong, {}, line.value("error", "")}
                                           : MeasureResult{Verdict::kMeasured, figure, {}});
    } else {
      ended_ = ended_ || line.contains("end");
    }
  }

  void report(const bench::MeasureInfo& info, const MeasureResult& result) {
    std::erase(left_, &info);
    ++done_;
    Series& series = series_[info.name];
    if (result.verdict == Verdict::kMeasured) {
      (is_time_slice(info, result.figure) ? series.slices : series.figures).push_back(result.figure);
      progress_.end(where_ + info.title, with_unit(result.figure.median, info.unit));
    } else {
      ++failed_;
      series.bad = result;
      progress_.end(where_ + info.title, fmt::format("{} ({})", verdict_name(result.verdict), result.reason));
    }
  }

  void warn(const std::string& warning) {
    std::string line = fmt::format("{}: {}", title_, warning);
    if (std::ranges::find(report_.warnings, line) != report_.warnings.end()) return;
    Progress::say(fmt::format("WARNING: {}: {}", report_.runtime.name, line));
    report_.warnings.push_back(std::move(line));
  }

  // Checks the windows' routes to the other ranks, as the windows reported them.
  void check_routes() {
    if (const auto left = opened_.count(""); left > 0)  // windows of the runtime
      warn(fmt::format("NOT FARSIDE: {} of {} windows were left to the runtime", left, opened_.size()));
    if (opened_.empty()) warn("NOT FARSIDE: no window was made");
    if (nodes_ > 1) return;
    const bool fabric = variant_.kind == Kind::kFabric;
    for (const std::string& route : std::set(opened_.begin(), opened_.end()))
      if (!route.empty() && fabric != (route == "fabric"))
        warn(fmt::format("WRONG ROUTE: {} within a node, where {} the fabric was to be measured", route,
                         fabric ? "only" : "not"));
  }

  // The launcher's environment, without the variables that this command sets for the ranks only.
  Environment environment() const {
    Environment environment = current_environment();
    allow_root(report_.runtime, environment);
    for (const std::string_view name : kSetHere) environment.erase(std::string(name));
    if (variant_.kind == Kind::kFabric) environment.erase("FARSIDE_PROVIDER");
    for (const auto& [name, value] : variant_.component_variables()) environment[name] = value;
    return environment;
  }

  std::vector<std::string> command_for(const Measures& measures) const {
    Variables variables = variables_of(variant_, report_.runtime, settings_.provider, nodes_ == 1);
    if (!settings_.launch.launcher.empty()) {  // mpirun passes on what is in its own environment
      const Variables component = variant_.component_variables();
      variables.insert(variables.begin(), component.begin(), component.end());
    }
    std::vector<std::string> words = launch_words(report_.runtime, settings_.launch, variables);
    std::vector<std::string_view> names;
    for (const auto* info : measures) names.push_back(info->name);
    // The bare measures need a provider with atomics. Over TCP that is libfabric's layer of datagram endpoints.
    const std::string provider = settings_.provider == "tcp" ? "tcp;ofi_rxm" : settings_.provider;
    for (const std::string& word :
         {report_.runtime.benchmark, std::string("--measures"), fmt::format("{}", fmt::join(names, ",")),
          std::string("--window"), settings_.window, std::string("--provider"), provider,
          std::string("--compute-seconds"), fmt::format("{}", settings_.compute_seconds)})
      words.push_back(word);
    return words;
  }

  const BenchSettings& settings_;
  RuntimeReport& report_;
  const Variant& variant_;
  int& nodes_;
  Progress& progress_;
  const std::string title_, where_;
  std::map<std::string_view, Series>& series_;
  Measures left_;  // to be measured
  std::size_t done_ = 0, failed_ = 0;
  std::string passed_over_;  // what farside said of a better provider
  // Of the program that runs:
  const bench::MeasureInfo* begun_ = nullptr;
  std::multiset<std::string> opened_;
  bool hello_ = false, ended_ = false;
};

// ---- all runs ----

// Returns the number of nodes of the ranks; 0 if the settings do not tell it.
int nodes_of(const BenchSettings& settings) {
  if (!settings.launch.hosts.empty()) {
    std::set<std::string> hosts;
    for (const std::string& entry : split(settings.launch.hosts, ",")) hosts.insert(entry.substr(0, entry.find(':')));
    return static_cast<int>(hosts.size());
  }
  const bool elsewhere = std::ranges::any_of(
      settings.launch.options, [](const std::string& word) { return word.find("host") != std::string::npos; });
  return settings.launch.launcher.empty() && !elsewhere ? 1 : 0;
}

// Whether a measure applies to a variant: bare measures stand beside one variant only, and nodes share no memory.
bool belongs(const bench::MeasureInfo& info, const Variant& variant, int nodes) {
  if (bench::is_bare_fabric(info)) return variant.kind == Kind::kFabric;
  if (info.target == bench::TargetState::kSpins) return variant.kind == Kind::kNode && nodes <= 1;
  return true;
}

bool measure_runtime(const BenchSettings& settings, const Measures& measures, Progress& progress,
                     RuntimeReport& report) {
  int nodes = nodes_of(settings);
  for (int round = 1; round <= settings.rounds; ++round) {
    for (const Variant* variant : report.variants) {
      Measures now = measures;
      for (const auto* info : measures) {
        if (belongs(*info, *variant, nodes) && !report.find(variant->key, info->name).broken()) continue;
        std::erase(now, info);
        progress.skip();
      }
      if (!VariantRun(settings, report, *variant, round, nodes, progress).run(now)) return false;
    }
  }
  return true;
}

}  // namespace

Measures chosen_measures(const BenchSettings& settings) {
  // The measures of --cluster: passive target, with other ranks and while the target computes.
  static const std::vector<std::string> kBetweenNodes = split(
      "put_flush get_flush fetch_and_op lock_put_unlock lock_put_unlock_compute get_compute "
      "fetch_and_op_compute contention rate fetch_rate",
      " ");
  // A report has plots, and not all of their points are default measures.
  static const std::vector<std::string> kPlotted =
      split("put_size get_size bare_write_size bare_read_size bare_copy_size progress contention rate", " ");
  static const std::vector<std::string> kSweeps{"put_size", "get_size"};
  const bool report = !settings.html_file.empty() && !settings.demo;
  const std::vector<std::string>& words = !settings.measures.empty() ? settings.measures
                                          : settings.osu             ? kSweeps
                                          : settings.cluster         ? kBetweenNodes
                                                                     : settings.measures;
  Measures result;
  for (const bench::MeasureInfo& info : bench::catalogue()) {
    const bool by_default = info.selection == bench::Selection::kDemo ||
                            (info.selection == bench::Selection::kDefault && !settings.demo) ||
                            (report && bench::named(kPlotted, info));
    const bool wanted = words.empty() ? by_default : bench::named(words, info);
    if (wanted && info.ranks <= settings.launch.ranks && !bench::named(settings.skip, info)) result.push_back(&info);
  }
  return result;
}

bool measure(const BenchSettings& settings, const Measures& measures, std::vector<RuntimeReport>& reports) {
  std::size_t runs = 0;
  for (const RuntimeReport& report : reports)
    runs += report.variants.size() * static_cast<std::size_t>(settings.rounds);
  Progress progress(runs * measures.size());
  return std::ranges::all_of(reports,
                             [&](auto& report) { return measure_runtime(settings, measures, progress, report); });
}

}  // namespace farside::tools
