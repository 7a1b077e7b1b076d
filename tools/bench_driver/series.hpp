// SPDX-License-Identifier: BSD-3-Clause
// All runs of one measure in one variant, and what they say together.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench_run.hpp"

namespace farside::tools {

struct Series {
  std::vector<Figure> figures;  // without those below
  std::vector<Figure> slices;   // is_time_slice(): they count only if there is nothing else
  Result bad;                   // the first that was not measured; then it is not tried again

  bool broken() const { return bad.verdict != Verdict::kMeasured; }
  bool measured() const { return !broken() && (!figures.empty() || !slices.empty()); }
  const std::vector<Figure>& counted() const { return figures.empty() ? slices : figures; }
  double median() const;   // of the runs' medians
  double fastest() const;  // the least of the runs' least
  // Not to be relied on: only time slices, or more than a factor of two between the medians of the runs.
  bool doubtful() const;
};

struct RuntimeReport {
  Runtime runtime;
  std::string library;                                                    // what the runtime says it is
  std::map<std::string_view, std::map<std::string_view, Series>> series;  // by variant and measure
  std::vector<std::string> warnings;

  // An empty one where there is none.
  const Series& find(std::string_view variant, std::string_view measure) const;
};

// The middle of the values, or the mean of the two in the middle; 0 of none.
double median_of(std::vector<double> values);

}  // namespace farside::tools
