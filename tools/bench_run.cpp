// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_run.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/child.hpp"
#include "tools/json.hpp"
#include "tools/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
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

}  // namespace farside::tools
