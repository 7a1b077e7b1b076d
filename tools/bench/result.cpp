// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <stdexcept>
#include <string_view>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <thread>
#include <tuple>

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
      add_once<std::string>(bare ? limits : operations, measure.at("title"));
    }
    for (const Json& variant : result.at("variants")) {
      const std::string key = variant.at("variant");
      for (const Json& measure : runtime.at("measures"))
        if (measure.at("variants").contains(key) && was_measured(measure.at("variants").at(key)))
          add_once<std::string>(variants, variant.at("title"));
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

const std::string& launcher_of(const BenchSettings& settings, const RuntimeReport& report) {
  return settings.launch.launcher.empty() ? report.runtime.launcher : settings.launch.launcher;
}

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
                               {"mean", figure.mean},
                               {"p90", figure.p90},
                               {"p99", figure.p99},
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
           {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
           {"command", command},
           {"libfabric", fmt::format("{}.{}", FI_MAJOR(fabric), FI_MINOR(fabric))},
           {"machine", machine()}};
  all["settings"] = {{"window", settings.window},
                     {"provider", settings.provider},
                     {"rounds", settings.rounds},
                     {"ranks", settings.launch.ranks},
                     {"compute_seconds", settings.compute_seconds},
                     {"launcher", settings.launch.launcher},
                     {"hosts", settings.launch.hosts},
                     {"launcher_options", settings.launch.options}};
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
    Json one{
        {"runtime", report.runtime.name},    {"version", report.library},   {"launcher", launcher_of(settings, report)},
        {"library", report.runtime.library}, {"warnings", report.warnings}, {"taken", Json::object()}};
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
  } catch (const Json::exception& error) {
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

// ---- two results side by side ----

namespace {

constexpr double kUnknownNoise = 2;

bool is_doubtful(const Json& figure) { return figure.value("doubtful", false); }

// Returns the spread of the runs of one figure, as a factor.
double spread(const Json& figure) {
  std::vector<double> medians;
  for (const Json& run : figure.at("runs"))
    if (!run.at("left_out").get<bool>()) medians.push_back(run.at("median"));
  if (medians.size() < 2) return kUnknownNoise;
  const auto [least, most] = std::ranges::minmax(medians);
  return least > 0 ? most / least : kUnknownNoise;
}

using Key = std::tuple<std::string, std::string, std::string>;  // runtime, measure, variant

// Calls visit(key, measure, figure, whether it is native or bare) for each figure, in the order of the catalogue.
template <class Visit>
void for_each_figure(const Json& result, Visit&& visit) {
  std::map<std::string, bool> native;
  for (const Json& variant : result.at("variants")) native[variant.at("variant")] = variant.at("native");
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      const std::string name = measure.at("measure");
      for (const auto& [variant, figure] : measure.at("variants").items())
        visit(Key(runtime.at("runtime"), name, variant), measure, figure, native[variant] || name.starts_with("bare_"));
    }
  }
}

// Classifies the change by a factor of at least 1 in both directions: 1.25 is +25 % or the reverse.
void classify(Comparison& result, const Json& measure, const Json& a, const Json& b, double threshold) {
  if (!result.a || !result.b) {
    if (result.a) result.change = Change::kLost;
    if (result.b) result.change = Change::kRegained;
    return;
  }
  const bool more = measure.at("better") == "more";
  const double before = more ? *result.b : *result.a;
  const double after = more ? *result.a : *result.b;
  result.noise = std::max(spread(a) * spread(b), 1 + threshold);
  if (!(before > 0) || !(after > 0)) {
    // A count or time of 0 has no ratio. A change from or to 0 counts only if the other value is at least 100.
    result.factor = before == after ? 1 : 0;
    if (before == 0 && after >= 100) result.change = Change::kRegression;
    if (after == 0 && before >= 100) result.change = Change::kImprovement;
    return;
  }
  result.factor = after / before;
  if (result.factor > result.noise) result.change = Change::kRegression;
  if (result.factor < 1 / result.noise) result.change = Change::kImprovement;
}

}  // namespace

std::string_view change_name(Change change) {
  constexpr std::array<std::string_view, 7> kNames = {
      "", "REGRESSION", "improvement", "LOST", "measured again", "only in A", "only in B"};
  return kNames[static_cast<std::size_t>(change)];
}

std::vector<Comparison> compare(const Json& a, const Json& b, double threshold) {
  std::map<Key, const Json*> in_a;
  for_each_figure(a, [&](const Key& key, const Json&, const Json& figure, bool) { in_a[key] = &figure; });
  std::vector<Comparison> result;
  const auto add = [&](const Key& key, const Json& measure, bool native, const Json* before, const Json* after) {
    Comparison& one = result.emplace_back();
    std::tie(one.runtime, one.measure, one.variant) = key;
    one.title = measure.at("title");
    one.unit = unit_of(measure);
    one.native = native;
    if (before != nullptr) std::tie(one.a, one.doubtful_a) = std::pair(median_in(*before), is_doubtful(*before));
    if (after != nullptr) std::tie(one.b, one.doubtful_b) = std::pair(median_in(*after), is_doubtful(*after));
    if (before != nullptr && after != nullptr) return classify(one, measure, *before, *after, threshold);
    one.change = before == nullptr ? Change::kOnlyB : Change::kOnlyA;
  };
  for_each_figure(b, [&](const Key& key, const Json& measure, const Json& figure, bool native) {
    const auto before = in_a.extract(key);
    add(key, measure, native, before ? before.mapped() : nullptr, &figure);
  });
  for_each_figure(a, [&](const Key& key, const Json& measure, const Json& figure, bool native) {
    if (in_a.contains(key)) add(key, measure, native, &figure, nullptr);
  });
  return result;
}

std::vector<std::string> differences(const Json& a, const Json& b) {
  std::vector<std::string> lines;
  const auto note = [&](const std::string& what, const Json& x, const Json& y) {
    const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
    if (x != y) lines.push_back(fmt::format("{}: {} / {}", what, text(x), text(y)));
  };
  for (const char* key : {"host", "processor", "threads", "system", "kernel"})
    note(key, a.at("machine").value(key, Json()), b.at("machine").value(key, Json()));
  for (const char* key : {"farside", "libfabric"}) note(key, a.value(key, Json()), b.value(key, Json()));
  for (const auto& [key, value] : a.at("settings").items())
    if (key != "rounds") note(key, value, b.at("settings").value(key, Json()));
  for (const Json& x : a.at("runtimes")) {
    for (const Json& y : b.at("runtimes"))
      if (x.at("runtime") == y.at("runtime")) note(x.at("runtime"), x.at("version"), y.at("version"));
  }
  return lines;
}

std::string comparison_text(const std::vector<Comparison>& comparisons, bool all) {
  Table table({"measure", "runtime", "variant", "A", "B", "time B/A", "noise", ""});
  bool any = false;
  for (const Comparison& one : comparisons) {
    if (!all && (one.change == Change::kNone || one.only_in_one())) continue;
    any = true;
    const auto shown = [&](const std::optional<double>& value, bool doubtful) {
      return value ? fmt::format("{}{}", doubtful ? kNoiseMark : "", with_unit(*value, one.unit)) : "-";
    };
    const bool both = one.a && one.b && one.factor > 0;
    const std::string_view mark = one.doubtful_a || one.doubtful_b ? kNoiseMark : "";
    table.add(one.title, one.runtime, one.variant, shown(one.a, one.doubtful_a), shown(one.b, one.doubtful_b),
              both ? fmt::format("{}{:.3g}", mark, one.factor) : "-", both ? fmt::format("{:.3g}", one.noise) : "-",
              change_name(one.change));
  }
  return any ? table.text() : std::string();
}

// ---- the table of a runtime ----

namespace {

using Measures = std::vector<const bench::MeasureInfo*>;

// The nodes if there are several or they have adapters, and what farside took between them.
std::string hosts_text(const RuntimeReport& report) {
  std::string text;
  const auto has_adapters = [](const auto& host) { return !host.at("adapters").empty(); };
  if (report.hosts.size() < 2 && std::ranges::none_of(report.hosts, has_adapters)) return text;
  for (const auto& host : report.hosts) {
    std::vector<std::string> adapters;
    for (const auto& adapter : host.at("adapters")) adapters.push_back(adapter_text(adapter));
    text += fmt::format("  {}: Linux {}, libfabric {}, {}\n", host.at("host").get<std::string>(),
                        host.at("kernel").get<std::string>(), host.at("libfabric").get<std::string>(),
                        adapters.empty() ? "no RDMA adapter" : fmt::format("{}", fmt::join(adapters, "; ")));
  }
  for (const auto& [variant, taken] : report.taken) {
    text += fmt::format("  {}: libfabric {}, device {}{}{}\n", variant, taken.provider, taken.device,
                        taken.passed_over.empty() ? "" : ": ", taken.passed_over);
  }
  return text;
}

// Returns whether figures of the variant are divided by native ones. Between ranks of one node native runtimes use
// shared memory, and farside over the fabric does not.
bool compared(const Variant& variant, const RuntimeReport& report) {
  return !variant.native() && (variant.kind != Variant::Kind::kFabric || report.hosts.size() > 1);
}

std::string cell(const Series& series, bench::Unit unit) {
  if (!series.measured()) return std::string(series.broken() ? verdict_name(series.bad.verdict) : "-");
  return fmt::format("{}{}", noise_mark(series, series), with_unit(series.median(), unit));
}

}  // namespace

std::string table_text(const BenchSettings& settings, const Measures& measures, const RuntimeReport& report) {
  const std::vector<const Variant*>& variants = report.variants;
  const bool native = std::ranges::any_of(variants, [](const Variant* v) { return v->key == "native"; });
  const auto bare_of = [&](const bench::MeasureInfo& info) -> const Series& {
    return report.find("fabric", info.bare);
  };
  const bool bare = std::ranges::any_of(measures, [&](const auto* info) { return bare_of(*info).measured(); });
  std::vector<std::string> header{"measure"};
  for (const Variant* variant : variants) {
    header.push_back(variant->full_title(settings.provider));
    if (native && compared(*variant, report)) header.emplace_back("ratio");
    if (bare && variant->key == "fabric") header.emplace_back("bare libfabric");
  }
  Table table(header);
  std::map<std::string, std::vector<std::string_view>> notes;  // by variant and reason: the measures concerned
  bool any_doubtful = false;
  std::size_t left_out = 0;
  for (const auto* info : measures) {
    std::vector<std::string> row{std::string(info->title)};
    const Series& base = report.find("native", info->name);
    for (const Variant* variant : variants) {
      const Series& series = report.find(variant->key, info->name);
      const bool good = series.measured();
      any_doubtful = any_doubtful || (good && series.doubtful());
      if (good && !series.figures.empty()) left_out += series.slices.size();
      row.push_back(cell(series, info->unit));
      if (native && compared(*variant, report)) {
        const bool comparable = good && base.measured() && !series.figures.empty() && !base.figures.empty();
        std::string times = comparable ? ratio(base.median(), series.median(), info->unit) : "-";
        if (times != "-") times.insert(0, noise_mark(base, series));
        row.push_back(std::move(times));
      }
      if (bare && variant->key == "fabric") {
        const Series& limit = bare_of(*info);
        any_doubtful = any_doubtful || (limit.measured() && limit.doubtful());
        row.push_back(cell(limit, info->unit));
      }
      if (series.broken()) {
        notes[fmt::format("{} {}: {}", variant->full_title(settings.provider), verdict_name(series.bad.verdict),
                          series.bad.reason)]
            .push_back(info->title);
      }
    }
    table.add(std::move(row));
  }
  std::string text =
      fmt::format("\n{} ({}), {} ranks, {} windows; median of {}\n\n{}",
                  report.library.empty() ? report.runtime.name : report.library, launcher_of(settings, report),
                  settings.launch.ranks, settings.window == "create" ? "created (malloc memory)" : "allocated",
                  counted(settings.rounds, "run"), table.text());
  text += hosts_text(report);
  if (any_doubtful) {
    text += fmt::format(
        "  {} noise: the runs differ by more than a factor of two, or show nothing but the scheduler's time slices;\n"
        "    also what is computed from such figures\n",
        kNoiseMark);
  }
  if (left_out > 0) {
    text += fmt::format("  left out: {} of runs in which a spinning rank lost its core to another program\n",
                        counted(left_out, "figure"));
  }
  for (const auto& [note, titles] : notes) text += fmt::format("  {} [{}]\n", note, fmt::join(titles, "; "));
  for (const std::string& warning : report.warnings) text += fmt::format("  WARNING: {}\n", warning);
  return text;
}

std::string osu_text(const BenchSettings& settings, const Measures& measures, const RuntimeReport& report) {
  std::string text;
  for (const std::string what : {"put", "get"}) {
    for (const Variant* variant : report.variants) {
      std::map<double, std::string> rows;  // by size
      for (const auto* info : measures) {
        const Series& series = report.find(variant->key, info->name);
        if (info->group != what + "_size" || !series.measured()) continue;
        std::string& row = rows[info->x] = fmt::format("{:<10}", info->x);
        for (const auto figure : {&Figure::mean, &Figure::median, &Figure::p90, &Figure::p99}) {
          const double value = series.median(figure);
          row += fmt::format("{:>20.4f}", info->unit == bench::Unit::kMegabytes ? info->x / value : value);
        }
      }
      text += fmt::format("\n# farside bench: {} + flush, {}, {}\n{:<10}{:>20}{:>20}{:>20}{:>20}\n", what,
                          report.library, variant->full_title(settings.provider), "# Size", "Latency (us)",
                          "P50 Tail Lat(us)", "P90 Tail Lat(us)", "P99 Tail Lat(us)");
      for (const auto& [size, row] : rows) text += row + '\n';
    }
  }
  return text;
}

}  // namespace farside::tools
