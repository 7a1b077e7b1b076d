// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <ctime>
#include <stdexcept>
#include <string_view>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fabric.h>

#include "pages.hpp"
#include "tools/bench/report.hpp"
#include "tools/common/host.hpp"

namespace farside::tools {
namespace {

constexpr std::size_t kMostTitles = 3;

bool was_measured(const Json& figure) { return figure.contains("median"); }

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
}

std::string listed(const std::vector<std::string>& texts, std::string_view what) {
  return texts.size() <= kMostTitles ? fmt::format("{}", fmt::join(texts, ", ")) : counted(texts.size(), what);
}

std::string place(const Json& result) {
  std::vector<std::string> names;
  for (const Json& host : result.value("hosts", Json::array())) names.push_back(host.at("host"));
  if (names.empty()) names.push_back(result.at("machine").at("host"));
  return fmt::format("on {}{}", names.size() == 1 ? "one node" : fmt::format("{} nodes", names.size()),
                     names.size() > kMostTitles ? "" : fmt::format(" ({})", fmt::join(names, ", ")));
}

}  // namespace

std::string headline(const Json& result) {
  std::vector<std::string> operations, limits, runtimes;  // limits: of what uses neither MPI nor farside
  for (const Json& runtime : result.at("runtimes")) {
    std::vector<std::string> variants;
    for (const Json& measure : runtime.at("measures")) {
      if (std::ranges::none_of(measure.at("variants"), was_measured)) continue;
      const bool bare = measure.at("measure").get<std::string>().starts_with("bare_");
      add_once(bare ? limits : operations, measure.at("title"));
    }
    for (const Json& variant : result.at("variants")) {
      const std::string key = variant.at("variant");
      for (const Json& measure : runtime.at("measures"))
        if (measure.at("variants").contains(key) && was_measured(measure.at("variants").at(key)))
          add_once(variants, variant.at("title"));
    }
    const std::string version = runtime.at("version"), name = runtime.at("runtime");
    runtimes.push_back(fmt::format("{}: {}", version.empty() ? name : version, fmt::join(variants, ", ")));
  }
  if (operations.empty() && limits.empty()) return "Nothing was measured.";
  const Json& settings = result.at("settings");
  const int rounds = settings.value("rounds", 0), ranks = settings.value("ranks", 0);
  std::string what = operations.empty() ? "" : listed(operations, "measure") + " of MPI's one-sided communication";
  if (!limits.empty()) {
    what += fmt::format("{}{} without MPI, as limits", what.empty() ? "" : "; beside them ",
                        listed(limits, what.empty() ? "measure" : "other"));
  }
  return fmt::format(
      "Measured: {}. {}{}, windows made by MPI_Win_{}. {} (a figure is the median{}). {}.", what,
      ranks > 0 ? counted(ranks, "rank") + " " : "Ranks ", place(result), settings.at("window").get<std::string>(),
      rounds > 1 ? fmt::format("{} runs of each variant, in alternation", rounds) : "One run of each variant",
      rounds > 1 ? " of the medians of the runs" : " of the run", fmt::join(runtimes, "; "));
}

// ---- result ----

namespace {

constexpr int kVersion = 2;

std::string now_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

Json machine() {
  utsname system{};
  uname(&system);
  struct sysinfo memory {};
  sysinfo(&memory);
  return {{"host", system.nodename},
          {"system", system_name()},
          {"kernel", system.release},
          {"processor", processor_name()},
          {"threads", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<std::uint64_t>(memory.totalram) * memory.mem_unit}};
}

Json figure_json(const Series& series) {
  Json value{{"verdict", verdict_name(series.bad.verdict)}};
  if (series.broken()) value["reason"] = series.bad.reason;
  if (series.measured()) {
    value["median"] = series.median();
    value["doubtful"] = series.doubtful();
  }
  value["runs"] = Json::array();
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
  return value;
}

// Throws a json exception if something is missing that comparisons or the page read.
void check(const Json& result) {
  compare(result, result, 0);
  differences(result, result);
  headline(result);
  for (const char* key : {"date", "headline"}) result.at(key).get<std::string>();
  for (const char* key : {"host", "processor", "kernel"}) result.at("machine").at(key).get<std::string>();
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& warning : runtime.at("warnings")) warning.get<std::string>();
    for (const Json& measure : runtime.at("measures")) {
      for (const char* key : {"group", "bare"}) measure.at(key).get<std::string>();
      measure.at("x").get<double>();
      for (const Json& figure : measure.at("variants")) figure.at("verdict").get<std::string>();
    }
  }
}

}  // namespace

Json to_json(const BenchSettings& settings, const std::string& command,
             const std::vector<const bench::MeasureInfo*>& measures, const std::vector<RuntimeReport>& reports,
             const std::vector<LeftOut>& left_out) {
  const std::uint32_t fabric = fi_version();
  Json all{{"farside_bench", kVersion},
           {"farside", FARSIDE_VERSION},
           {"date", now_utc()},
           {"command", command},
           {"libfabric", fmt::format("{}.{}", FI_MAJOR(fabric), FI_MINOR(fabric))},
           {"machine", machine()}};
  all["settings"] = {{"window", settings.window},
                     {"provider", settings.provider},
                     {"rounds", settings.rounds},
                     {"ranks", settings.ranks},
                     {"compute_seconds", settings.compute_seconds},
                     {"launcher", settings.launcher},
                     {"hosts", settings.hosts},
                     {"launcher_options", settings.launcher_options}};
  all["hosts"] = Json::array();
  for (const RuntimeReport& report : reports)
    if (all["hosts"].empty() && !report.hosts.is_null()) all["hosts"] = report.hosts;
  all["left_out"] = Json::array();
  for (const LeftOut& one : left_out) all["left_out"].push_back({{"runtime", one.runtime}, {"reason", one.reason}});
  all["variants"] = Json::array();
  for (const Variant* variant : variants_named(settings.variants)) {
    all["variants"].push_back(
        {{"variant", variant->key}, {"title", variant->full_title(settings.provider)}, {"native", variant->native()}});
  }
  all["runtimes"] = Json::array();
  for (const RuntimeReport& report : reports) {
    Json one{{"runtime", report.runtime.name},
             {"version", report.library},
             {"launcher", settings.launcher.empty() ? report.runtime.launcher : settings.launcher},
             {"library", report.runtime.library},
             {"warnings", report.warnings},
             {"taken", Json::object()}};
    for (const auto& [variant, taken] : report.taken) {
      one["taken"][std::string(variant)] = {
          {"provider", taken.provider}, {"device", taken.device}, {"passed_over", taken.passed_over}};
    }
    one["measures"] = Json::array();
    for (const auto* info : measures) {
      Json line{{"measure", info->name},
                {"title", info->title},
                {"unit", bench::unit_name(info->unit)},
                {"better", bench::more_is_better(info->unit) ? "more" : "less"},
                {"group", info->group},
                {"x", info->x},
                {"bare", info->bare}};
      line["variants"] = Json::object();
      for (const Variant* variant : variants_named(settings.variants)) {
        const Series& series = report.find(variant->key, info->name);
        if (series.broken() || series.measured()) line["variants"][std::string(variant->key)] = figure_json(series);
      }
      one["measures"].push_back(std::move(line));
    }
    all["runtimes"].push_back(std::move(one));
  }
  all["headline"] = headline(all);
  return all;
}

Json read_result(const std::string& file) {
  const Json result = parse_json_line(read_file(file));
  if (!result.is_object() || !result.contains("farside_bench"))
    throw std::runtime_error(fmt::format("{} is not what farside bench --json writes", file));
  if (result["farside_bench"] != kVersion) {
    throw std::runtime_error(fmt::format("{} has version {} of the format, this farside knows {}: measure again", file,
                                         result["farside_bench"].dump(), kVersion));
  }
  try {
    check(result);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{} is damaged: {}", file, error.what()));
  }
  return result;
}

std::string html_report(const Json& result) { return page_with(kReportPage, json_text(result, 2) + '\n'); }

std::optional<double> median_in(const Json& figure) {
  return figure.contains("median") ? std::optional(figure.at("median").get<double>()) : std::nullopt;
}

bench::Unit unit_of(const Json& measure) {
  for (const bench::Unit unit : {bench::Unit::kMegabytes, bench::Unit::kPerSecond, bench::Unit::kRatio})
    if (measure.at("unit") == bench::unit_name(unit)) return unit;
  return bench::Unit::kMicroseconds;
}

}  // namespace farside::tools
