// SPDX-License-Identifier: BSD-3-Clause
// The table of a runtime for a terminal.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/bench/report.hpp"
#include "tools/common/host.hpp"

namespace farside::tools {
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
  std::string text = fmt::format("\n{} ({}), {} ranks, {} windows; median of {}\n\n{}",
                                 report.library.empty() ? report.runtime.name : report.library,
                                 settings.launcher.empty() ? report.runtime.launcher : settings.launcher,
                                 settings.ranks, settings.window == "create" ? "created (malloc memory)" : "allocated",
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

}  // namespace farside::tools
