// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/driver.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/child.hpp"
#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {

namespace {

using Kind = Variant::Kind;

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
  Variables variables;
  if (component.empty()) return variables;
  variables.emplace_back("OMPI_MCA_osc", component);
  if (component == "ucx") {
    // osc/ucx needs UCX's pml. Without a NIC both refuse to run unless any device is allowed.
    variables.emplace_back("OMPI_MCA_pml", "ucx");
    variables.emplace_back("OMPI_MCA_opal_common_ucx_tls", "any");
    variables.emplace_back("OMPI_MCA_opal_common_ucx_devices", "any");
  }
  return variables;
}

std::span<const Variant> all_variants() { return kVariants; }

std::vector<const Variant*> variants_named(const std::vector<std::string>& keys) {
  std::vector<const Variant*> result;
  for (const Variant& variant : kVariants) {
    if (std::ranges::find(keys, variant.key) != keys.end()) result.push_back(&variant);
  }
  return result;
}

// ---- bench run ----

namespace {

// Returns the launcher's environment, without the variables that this command sets for the ranks only.
Environment environment_for(const BenchRequest& request) {
  Environment environment = current_environment();
  allow_root(request.runtime, environment);
  for (const char* name : {"LD_PRELOAD", "FARSIDE_STATS", "FARSIDE_TRACE", "FARSIDE_ROUTES", "FARSIDE_CHECK"}) {
    environment.erase(name);
  }
  if (request.variant->kind == Variant::Kind::kFabric) environment.erase("FARSIDE_PROVIDER");
  for (const auto& [name, value] : request.variant->component_variables()) environment[name] = value;
  return environment;
}

Variables variables_for(const BenchRequest& request) {
  Variables variables;
  const bool native = request.variant->native();
  const Environment environment = environment_for(request);
  const std::string preload = preload_list(variable("LD_PRELOAD"), native ? "" : request.runtime.library);
  if (!preload.empty()) variables.emplace_back("LD_PRELOAD", preload);
  // Not every launcher takes the user's environment to other nodes.
  for (const auto& [name, value] : environment)
    if (name.starts_with("FI_") || name.starts_with("UCX_")) variables.emplace_back(name, value);
  if (native) return variables;
  for (const Setting& setting : settings_table())
    if (const auto set = environment.find(setting.name); set != environment.end()) variables.push_back(*set);
  variables.emplace_back("FARSIDE_CHECK", request.variant->kind == Variant::Kind::kUnchecked ? "off" : "on");
  if (request.variant->kind == Variant::Kind::kFabric) {
    variables.emplace_back("FARSIDE_ROUTES", "fabric");
    variables.emplace_back("FARSIDE_PROVIDER", request.settings.provider);
    // Without this, libfabric takes the first interface that is up, although all ranks are on one machine.
    if (request.nodes == 1 && std::getenv("FI_TCP_IFACE") == nullptr) variables.emplace_back("FI_TCP_IFACE", "lo");
  }
  return variables;
}

// The bare measures need a provider with atomics. Over TCP that is libfabric's layer of datagram endpoints.
std::string bare_provider(const std::string& provider) { return provider == "tcp" ? "tcp;ofi_rxm" : provider; }

std::vector<std::string> command_for(const BenchRequest& request,
                                     const std::vector<const bench::MeasureInfo*>& measures) {
  const BenchSettings& settings = request.settings;
  Variables variables = variables_for(request);
  if (!settings.launcher.empty()) {  // mpirun passes on what is in its own environment
    const Variables component = request.variant->component_variables();
    variables.insert(variables.begin(), component.begin(), component.end());
  }
  const Launch launch{settings.ranks, settings.launcher, settings.hosts, settings.cluster, settings.launcher_options};
  std::vector<std::string> words = launch_words(request.runtime, launch, variables);
  std::vector<std::string_view> names;
  for (const auto* info : measures) names.push_back(info->name);
  const std::vector<std::string> program{request.runtime.benchmark,
                                         "--measures",
                                         fmt::format("{}", fmt::join(names, ",")),
                                         "--window",
                                         settings.window,
                                         "--provider",
                                         bare_provider(settings.provider),
                                         "--compute-seconds",
                                         fmt::format("{}", settings.compute_seconds)};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

// Returns the measures that may share a run with the first one: measures with threads initialize MPI with
// MPI_THREAD_MULTIPLE, which would slow down the others.
std::vector<const bench::MeasureInfo*> alike(std::vector<const bench::MeasureInfo*> measures) {
  const bool threads = measures.front()->threads;
  std::erase_if(measures, [&](const auto* info) { return info->threads != threads; });
  return measures;
}

// Returns the signal that ended a rank: launchers pass it on as exit code 128 + signal.
std::optional<int> signal_of(const ChildEnd& end) {
  if (end.how == ChildEnd::How::kSignalled) return end.code;
  if (end.how == ChildEnd::How::kExited && end.code > 128 && end.code < 128 + 65) return end.code - 128;
  return std::nullopt;
}

MeasureResult verdict_of(const ChildEnd& end, double timeout) {
  if (const auto number = signal_of(end)) return {Verdict::kCrashed, {}, strsignal(*number)};
  MeasureResult result{Verdict::kFailed, {}, fmt::format("exit status {}", end.code)};
  if (end.how == ChildEnd::How::kSilent) {
    result = {Verdict::kHung, {}, fmt::format("nothing for {:.0f} s, ended", timeout)};
  } else if (end.how == ChildEnd::How::kNotStarted) {
    result.reason = fmt::format("no process for the launcher: {}", std::strerror(end.code));
  }
  if (const std::string lines = telling_lines(end.error_output); !lines.empty()) result.reason += "; " + lines;
  return result;
}

// After so many failed measures and no figure, a native variant is not tried again: each may take `--timeout`.
constexpr std::size_t kMostFailures = 3;

// What MPI_Finalize and the launcher may take behind the last measure (MPICH 4.0 over UCX's tcp never ends there).
constexpr double kEndSeconds = 10;

bool is_broken(const std::pair<const std::string_view, MeasureResult>& result) {
  return result.second.verdict != Verdict::kMeasured;
}

// `opened`: each window's route to the other ranks, as the window reported it; empty for a window of the runtime.
void check_routes(const BenchRequest& request, int nodes, const std::vector<std::string>& opened,
                  std::vector<std::string>& warnings) {
  const auto left = std::ranges::count(opened, "");
  if (left > 0)
    warnings.push_back(fmt::format("NOT FARSIDE: {} of {} windows were left to the runtime", left, opened.size()));
  if (opened.empty()) warnings.push_back("NOT FARSIDE: no window was made");
  if (nodes > 1) return;
  const bool fabric = request.variant->kind == Variant::Kind::kFabric;
  for (const std::string& route : std::set(opened.begin(), opened.end())) {
    if (!route.empty() && fabric != (route == "fabric"))
      warnings.push_back(fmt::format("WRONG ROUTE: {} within a node, where {} the fabric was to be measured", route,
                                     fabric ? "only" : "not"));
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::array<std::string_view, 5> kNames = {"measured", "wrong", "crashed", "failed", "hung"};
  return kNames[static_cast<std::size_t>(verdict)];
}

bool is_time_slice(const bench::MeasureInfo& info, const Figure& figure) {
  const bool attentive = info.target == bench::TargetState::kInBarrier || info.target == bench::TargetState::kTakesPart;
  return attentive && info.unit == bench::Unit::kMicroseconds && figure.median >= 1000 && figure.preempted >= 0.25;
}

BenchOutcome run_benchmark(const BenchRequest& request) {
  BenchOutcome outcome;
  std::vector<const bench::MeasureInfo*> left = request.measures;
  const auto report = [&](const bench::MeasureInfo& info, MeasureResult result) {
    std::erase(left, &info);
    if (request.on_result) request.on_result(info, result);
    outcome.results[info.name] = std::move(result);
  };
  while (!left.empty()) {
    std::vector<std::string> opened;
    const bench::MeasureInfo* begun = nullptr;
    bool hello = false;
    bool ended = false;
    ChildRequest child;
    const std::vector<const bench::MeasureInfo*> now = alike(left);
    child.arguments = command_for(request, now);
    child.environment = environment_for(request);
    child.silence_seconds = request.settings.timeout_seconds + request.settings.compute_seconds;
    child.on_tick = request.on_tick;
    child.on_line = [&](std::string_view text) {
      const nlohmann::json line = parse_json_line<nlohmann::json>(text);
      if (!line.is_object()) return;  // a runtime may print to stdout too
      if (line.contains("hello")) {
        hello = true;
        outcome.library = line.value("library", "");
        outcome.nodes = line.value("nodes", 1);
        outcome.hosts = line.value("hosts", nlohmann::json::array());
      } else if (line.contains("begin")) {
        begun = bench::find_measure(line.value("begin", ""));
        if (begun != nullptr && request.on_begin) request.on_begin(*begun);
      } else if (line.contains("opened")) {
        opened.push_back(line.value("opened", ""));
        if (const std::string provider = line.value("provider", ""); !provider.empty())
          outcome.taken = {provider, line.value("device", ""), outcome.taken.passed_over};
      } else if (const auto* info = bench::find_measure(line.value("measure", "")); info != nullptr) {
        begun = nullptr;
        if (line.contains("error")) {
          report(*info, {Verdict::kWrong, {}, line.value("error", "")});
        } else {
          const Figure figure{line.value("median", 0.0), line.value("min", 0.0), line.value("p90", 0.0),
                              line.value("samples", 0L), line.value("preempted", 0.0)};
          report(*info, {Verdict::kMeasured, figure, {}});
        }
      } else if (line.contains("end")) {
        ended = true;
        child.silence_seconds = std::min(child.silence_seconds, kEndSeconds);
      }
    };
    const ChildEnd end = run_child(child);
    if (end.how == ChildEnd::How::kInterrupted) {
      outcome.interrupted = true;
      return outcome;
    }
    for (const std::string& line : split(end.error_output, "\n")) {  // the first window has the reason
      const std::size_t at = line.find("the ranks use libfabric ");
      if (outcome.taken.passed_over.empty() && at != std::string::npos) outcome.taken.passed_over = line.substr(at);
    }
    const bool fine = ended && end.how == ChildEnd::How::kExited && end.code == 0;
    if (fine) {
      const bool uses_mpi = std::ranges::any_of(now, [](const auto* info) { return !bench::is_bare(*info); });
      if (!request.variant->native() && uses_mpi) check_routes(request, outcome.nodes, opened, outcome.warnings);
      // The run ended well. A measure that the program left out without an error would be retried for ever.
      for (const auto* info : now) {
        if (std::ranges::find(left, info) != left.end())
          report(*info, {Verdict::kFailed, {}, "the benchmark did not report it"});
      }
      continue;
    }
    const MeasureResult verdict = verdict_of(end, child.silence_seconds);
    const auto next =
        std::ranges::find_if(now, [&](const auto* info) { return std::ranges::find(left, info) != left.end(); });
    if (next == now.end()) {
      outcome.warnings.push_back(
          fmt::format("after its last measure the program {}: {}", verdict_name(verdict.verdict), verdict.reason));
    } else if (!hello || (request.variant->native() && outcome.results.size() + 1 >= kMostFailures &&
                          std::ranges::all_of(outcome.results, &is_broken))) {
      // The program failed before its first measure, or in each so far: this cluster does not have the variant.
      const auto rest = left;
      for (const auto* info : rest) report(*info, verdict);
    } else {
      // If the launcher lost the line that named the measure, it is the first one without a result.
      report(begun != nullptr ? *begun : **next, verdict);
    }
  }
  return outcome;
}

// ---- series ----

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

double Series::median() const {
  std::vector<double> medians;
  for (const Figure& figure : counted()) medians.push_back(figure.median);
  return median_of(std::move(medians));
}

double Series::fastest() const { return std::ranges::min(counted(), {}, &Figure::min).min; }

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

void leave_out_lacking(const std::vector<const bench::MeasureInfo*>& measures, RuntimeReport& report,
                       std::vector<LeftOut>& left_out) {
  std::erase_if(report.variants, [&](const Variant* variant) {
    const auto broken = [&](const auto* info) { return report.find(variant->key, info->name).broken(); };
    const auto tried = std::ranges::find_if(measures, broken);
    const auto measured = [&](const auto* info) { return report.find(variant->key, info->name).measured(); };
    if (!variant->native() || tried == measures.end() || std::ranges::any_of(measures, measured)) return false;
    const MeasureResult& bad = report.find(variant->key, (*tried)->name).bad;
    left_out.push_back({report.runtime.name, std::string(variant->key),
                        fmt::format("no measure runs: {}: {}", verdict_name(bad.verdict), bad.reason)});
    report.series.erase(variant->key);
    return true;
  });
}

// ---- progress ----

namespace {

void rewrite(const std::string& line) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A wrapped line could not be rewritten.
  fmt::print("\r\033[K{}", line.substr(0, known ? size.ws_col - 1U : 79U));
  std::fflush(stdout);
}

}  // namespace

Progress::Progress(int total, bool rewrites) : total_(std::max(total, 1)), rewrites_(rewrites) {}

void Progress::begin(const std::string& what) {
  current_ = what;
  if (rewrites_) rewrite(fmt::format("{} {} ...", bar(), what));
}

void Progress::end(const std::string& what, const std::string& result) {
  done_ = std::min(done_ + 1, total_);
  if (rewrites_) {
    rewrite(fmt::format("{} {}: {}", bar(), what, result));
  } else {
    say(fmt::format("[{:3}%] {}: {}", 100 * done_ / total_, what, result));
  }
}

void Progress::skip() {
  done_ = std::min(done_ + 1, total_);
  ++skipped_;
}

void Progress::tick() {
  if (!rewrites_ || current_.empty()) return;
  static constexpr std::string_view kTurning = "|/-\\";
  turn_ = (turn_ + 1) % kTurning.size();
  rewrite(fmt::format("{} {} {}", bar(), current_, kTurning[turn_]));
}

void Progress::say(const std::string& line) {
  clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Progress::clear() {
  if (rewrites_) fmt::print("\r\033[K");
  std::fflush(stdout);
}

std::string Progress::bar() const {
  constexpr int kWidth = 20;
  const int filled = kWidth * done_ / total_;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string left;
  if (const int timed = done_ - skipped_; timed >= 5) {
    const int seconds = static_cast<int>(elapsed * (total_ - done_) / timed);
    left = fmt::format(" {}:{:02} left", seconds / 60, seconds % 60);
  }
  return fmt::format("[{:#<{}}{:-<{}}] {:3}%{}", "", filled, "", kWidth - filled, 100 * done_ / total_, left);
}

bool stdout_rewrites() {
  const std::string term = variable("TERM");
  return isatty(STDOUT_FILENO) != 0 && !term.empty() && term != "dumb";
}

// ---- session ----

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
