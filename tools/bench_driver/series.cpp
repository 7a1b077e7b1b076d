// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_driver/series.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace farside::tools {

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

}  // namespace farside::tools
