// SPDX-License-Identifier: BSD-3-Clause
// The table of a runtime for a terminal, and comparisons of its figures below it.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/bench/report.hpp"
#include "tools/common/host.hpp"

namespace farside::tools {
namespace {

using Measures = std::vector<const bench::MeasureInfo*>;

bool attentive(const bench::MeasureInfo& info) { return info.target == bench::TargetState::kInBarrier; }

// Both figures contain the same round trip, so this ratio depends less on a noisy machine than the figures do.
std::string round_trips(const std::string& title, const Measures& measures, const RuntimeReport& report) {
  std::string text;
  constexpr std::string_view kLock = "lock_put_unlock";
  for (const auto* info : measures) {
    if (!info->name.starts_with(kLock)) continue;
    const Series& series = report.find("fabric", info->name);
    const Series& round_trip = report.find("fabric", "bare_fetch_add" + std::string(info->name.substr(kLock.size())));
    if (!series.measured() || !round_trip.measured()) continue;
    text += fmt::format("  {}, {}: {}{:.1f} bare round trips (fetch-add)\n", title, info->title,
                        noise_mark(series, round_trip), series.median() / round_trip.median());
  }
  return text;
}

std::string cost_of_checks(const Measures& measures, const RuntimeReport& report) {
  std::string text;
  for (const auto* info : measures) {
    const Series& checked = report.find("node", info->name);
    const Series& unchecked = report.find("unchecked", info->name);
    if (!checked.measured() || !unchecked.measured() || info->unit != bench::Unit::kMicroseconds) continue;
    text += fmt::format("  {}: what FARSIDE_CHECK=on costs: {}{:+.1f} ns (medians), {:+.1f} ns (fastest batches)\n",
                        info->title, noise_mark(checked, unchecked), 1000 * (checked.median() - unchecked.median()),
                        1000 * (checked.fastest() - unchecked.fastest()));
  }
  return text;
}

// How much longer an operation takes while its target computes.
std::string cost_of_computing(const Measures& measures, const RuntimeReport& report) {
  std::string text;
  for (const auto* busy : measures) {
    if (!busy->name.ends_with("_compute")) continue;
    const std::string stem = busy->name.substr(0, busy->name.size() - std::string_view("_compute").size());
    for (const auto* idle : measures) {
      if (!attentive(*idle) || (idle->name != stem && idle->name != stem + "_flush")) continue;
      std::vector<std::string> shares;
      for (const Variant* variant : report.variants) {
        const Series& a = report.find(variant->key, idle->name);
        const Series& b = report.find(variant->key, busy->name);
        if (a.measured() && b.measured() && a.median() > 0)
          shares.push_back(fmt::format("{} {}{:.3g}", variant->key, noise_mark(a, b), b.median() / a.median()));
      }
      if (!shares.empty())
        text += fmt::format("  {}: times as long as when the target waits: {}\n", busy->title, fmt::join(shares, ", "));
    }
  }
  return text;
}

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
  // With many variants the ratios have a table of their own, since no terminal is wide enough for one table.
  const bool apart = native && variants.size() > 4;
  std::vector<std::string> header{"measure"};
  std::vector<std::string> ratio_header{"times as fast as native"};
  for (const Variant* variant : variants) {
    header.push_back(variant->full_title(settings.provider));
    if (native && compared(*variant, report)) {
      if (apart)
        ratio_header.push_back(header.back());
      else
        header.emplace_back("ratio");
    }
    if (bare && variant->key == "fabric") header.emplace_back("bare libfabric");
  }
  Table table(header);
  Table ratios(ratio_header);
  std::map<std::string, std::vector<std::string_view>> notes;  // by variant and reason: the measures concerned
  bool any_doubtful = false;
  std::size_t left_out = 0;
  for (const auto* info : measures) {
    std::vector<std::string> row{std::string(info->title)};
    std::vector<std::string> ratio_row{std::string(info->title)};
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
        (apart ? ratio_row : row).push_back(std::move(times));
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
    if (std::any_of(ratio_row.begin() + 1, ratio_row.end(), [](const std::string& text) { return text != "-"; }))
      ratios.add(std::move(ratio_row));
  }
  std::string text = fmt::format("\n{} ({}), {} ranks, {} windows; median of {}\n\n{}",
                                 report.library.empty() ? report.runtime.name : report.library,
                                 settings.launcher.empty() ? report.runtime.launcher : settings.launcher,
                                 settings.ranks, settings.window == "create" ? "created (malloc memory)" : "allocated",
                                 counted(settings.rounds, "run"), table.text());
  if (apart) text += fmt::format("\n{}", ratios.text());
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
  for (const Variant* variant : variants)
    if (variant->key == "fabric") text += round_trips(variant->full_title(settings.provider), measures, report);
  text += cost_of_computing(measures, report);
  text += cost_of_checks(measures, report);
  for (const auto& [note, titles] : notes) text += fmt::format("  {} [{}]\n", note, fmt::join(titles, "; "));
  for (const std::string& warning : report.warnings) text += fmt::format("  WARNING: {}\n", warning);
  return text;
}

}  // namespace farside::tools
