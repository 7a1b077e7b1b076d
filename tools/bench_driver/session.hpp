// SPDX-License-Identifier: BSD-3-Clause
// All runs of a benchmark: the variants of a runtime in alternation, as often as was asked for.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_driver/progress.hpp"
#include "tools/bench_driver/series.hpp"
#include "tools/bench_driver/settings.hpp"

namespace farside::tools {

// What the settings choose, in the catalogue's order, and no measure that needs more ranks than there are.
std::vector<const bench::MeasureInfo*> chosen_measures(const BenchSettings& settings);

// Runs all rounds of all variants of `report.runtime`, and fills the rest of the report; false if
// interrupted.
bool measure_runtime(const BenchSettings& settings, const std::vector<const Variant*>& variants,
                     const std::vector<const bench::MeasureInfo*>& measures, Progress& progress,
                     RuntimeReport& report);

}  // namespace farside::tools
