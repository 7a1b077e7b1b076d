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

bool was_measured(const Json& measure) {
  return std::ranges::any_of(measure.at("variants"), [](const Json& figure) { return figure.contains("median"); });
}

// The titles of the measures with a figure: those of MPI, or of what uses neither MPI nor farside.
std::vector<std::string> titles_of(const Json& result, bool bare) {
  std::vector<std::string> titles;
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      const std::string title = measure.at("title");
      if (measure.at("measure").get<std::string>().starts_with("bare_") != bare || !was_measured(measure)) continue;
      if (std::ranges::find(titles, title) == titles.end()) titles.push_back(title);
    }
  }
  return titles;
}

std::string listed(const std::vector<std::string>& titles, std::string_view what) {
  if (titles.size() <= kMostTitles) return fmt::format("{}", fmt::join(titles, ", "));
  return counted(titles.size(), what);
}

std::string place(const Json& result) {
  std::vector<std::string> names;
  for (const Json& host : result.value("hosts", Json::array())) names.push_back(host.at("host").get<std::string>());
  if (names.empty()) names.push_back(result.at("machine").at("host").get<std::string>());
  if (names.size() == 1) return "on one node (" + names[0] + ")";
  if (names.size() > kMostTitles) return fmt::format("on {} nodes", names.size());
  return fmt::format("on {} nodes ({})", names.size(), fmt::join(names, ", "));
}

// "Open MPI v4.1.4: native, farside, farside over tcp"
std::string variants_of(const Json& result, const Json& runtime) {
  std::vector<std::string> titles;
  for (const Json& variant : result.at("variants")) {
    const std::string key = variant.at("variant");
    if (std::ranges::any_of(runtime.at("measures"), [&](const Json& measure) {
          return measure.at("variants").contains(key) && measure.at("variants").at(key).contains("median");
        }))
      titles.push_back(variant.at("title").get<std::string>());
  }
  const std::string version = runtime.at("version");
  return fmt::format("{}: {}", version.empty() ? runtime.at("runtime").get<std::string>() : version,
                     fmt::join(titles, ", "));
}

}  // namespace

std::string headline(const Json& result) {
  const std::vector<std::string> operations = titles_of(result, false), limits = titles_of(result, true);
  if (operations.empty() && limits.empty()) return "Nothing was measured.";
  const Json& settings = result.at("settings");
  std::vector<std::string> runtimes;
  for (const Json& runtime : result.at("runtimes")) runtimes.push_back(variants_of(result, runtime));
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

// A field of a CSV file (RFC 4180).
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return fmt::format("\"{}\"", fmt::join(split(text, "\""), "\"\""));
}

// Checks what to_csv() does not read of a result, and throws a json exception if it is missing.
void check(const Json& result) {
  for (const char* key : {"host", "processor", "kernel"}) result.at("machine").at(key).get<std::string>();
  result.at("settings").at("window").get<std::string>();
  result.at("date").get<std::string>();
  result.value("headline", std::string());
  headline(result);
  for (const Json& variant : result.at("variants")) {
    for (const char* key : {"variant", "title"}) variant.at(key).get<std::string>();
    variant.at("native").get<bool>();
  }
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& warning : runtime.at("warnings")) warning.get<std::string>();
    for (const Json& measure : runtime.at("measures")) {
      for (const char* key : {"better", "bare"}) measure.at(key).get<std::string>();
      for (const Json& figure : measure.at("variants")) figure.value("median", 0.0);
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
  for (const LeftOut& one : left_out)
    all["left_out"].push_back({{"runtime", one.runtime}, {"variant", one.variant}, {"reason", one.reason}});
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

std::string to_csv(const Json& result) {
  std::string text =
      "runtime,version,measure,title,group,x,variant,verdict,unit,run,median,min,p90,samples,preempted,left_out\n";
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      for (const auto& [variant, figure] : measure.at("variants").items()) {
        const std::string start = fmt::format(
            "{},{},{},{},{},{},{},{},{}", field(runtime.at("runtime")), field(runtime.at("version")),
            field(measure.at("measure")), field(measure.at("title")), field(measure.at("group")),
            measure.at("x").get<double>(), field(variant), field(figure.at("verdict")), field(measure.at("unit")));
        int number = 0;
        for (const Json& run : figure.at("runs")) {
          text += fmt::format("{},{},{},{},{},{},{},{}\n", start, ++number, run.at("median").get<double>(),
                              run.at("min").get<double>(), run.at("p90").get<double>(), run.at("samples").get<long>(),
                              run.at("preempted").get<double>(), run.at("left_out").get<bool>());
        }
        if (number == 0) text += start + ",,,,,,,\n";
      }
    }
  }
  return text;
}

Json read_result(const std::string& file) {
  const Json result = parse_json_line(read_file(file, Wait::kYes));
  if (!result.is_object() || !result.contains("farside_bench"))
    throw std::runtime_error(fmt::format("{} is not what farside bench --json writes", file));
  if (result["farside_bench"] != kVersion) {
    throw std::runtime_error(fmt::format("{} has version {} of the format, this farside knows {}: measure again", file,
                                         result["farside_bench"].dump(), kVersion));
  }
  try {
    to_csv(result);
    check(result);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{} is damaged: {}", file, error.what()));
  }
  return result;
}

std::string html_report(const Json& result) {
  if (result.contains("headline")) return page_with(kReportPage, json_text(result, 2) + '\n');
  Json complete = result;
  complete["headline"] = headline(result);
  return page_with(kReportPage, json_text(complete, 2) + '\n');
}

std::optional<double> median_in(const Json& figure) {
  return figure.contains("median") ? std::optional(figure.at("median").get<double>()) : std::nullopt;
}

bench::Unit unit_of(const Json& measure) {
  for (const bench::Unit unit : {bench::Unit::kMegabytes, bench::Unit::kPerSecond, bench::Unit::kRatio})
    if (measure.at("unit") == bench::unit_name(unit)) return unit;
  return bench::Unit::kMicroseconds;
}

}  // namespace farside::tools
