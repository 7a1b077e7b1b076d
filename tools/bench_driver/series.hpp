// SPDX-License-Identifier: BSD-3-Clause
// All runs of one measure in one variant, and figures from them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench_driver/variant.hpp"
#include "tools/bench_run.hpp"

namespace farside::tools {

// Stands before a figure that is doubtful, and before what is computed from such a figure.
inline constexpr std::string_view kNoiseMark = "~";

struct Series {
  std::vector<Figure> figures;  // without `slices`
  std::vector<Figure> slices;   // runs with is_time_slice(); they count only if there are no others
  MeasureResult bad;            // the first failure; the measure is not tried again then

  bool broken() const { return bad.verdict != Verdict::kMeasured; }
  bool measured() const { return !broken() && (!figures.empty() || !slices.empty()); }
  const std::vector<Figure>& counted() const { return figures.empty() ? slices : figures; }
  double median() const;   // of the runs' medians
  double fastest() const;  // the smallest minimum of the runs; precondition: measured()
  // Whether the figure is unreliable, which all tables show by kNoiseMark: only time slices, or run medians that differ
  // by more than a factor of two.
  bool doubtful() const;
};

struct RuntimeReport {
  Runtime runtime;
  std::vector<const Variant*> variants;                                   // in the order of measuring
  std::string library;                                                    // the runtime's own name and version
  std::map<std::string_view, std::map<std::string_view, Series>> series;  // by variant and measure
  std::vector<std::string> warnings;
  std::map<std::string_view, Taken> taken;  // by variant
  Json hosts;                               // host_facts() of each node; null before a run has begun

  // Returns an empty series if there is none.
  const Series& find(std::string_view variant, std::string_view measure) const;
};

// Moves the native variants without any figure out of the report: the cluster does not have them.
void leave_out_lacking(const std::vector<const bench::MeasureInfo*>& measures, RuntimeReport& report,
                       std::vector<LeftOut>& left_out);

// Returns kNoiseMark if one of the series is doubtful, else nothing.
std::string_view noise_mark(const Series& one, const Series& other);

// Returns the median of the values (the mean of the two middle ones); 0 if there are none.
double median_of(std::vector<double> values);

}  // namespace farside::tools
