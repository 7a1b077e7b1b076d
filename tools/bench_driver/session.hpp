// SPDX-License-Identifier: BSD-3-Clause
// Makes all runs of a benchmark: the variants of a runtime in alternation, for the requested number of rounds.
#pragma once

#include <vector>

#include "tools/bench_driver/progress.hpp"
#include "tools/bench_driver/series.hpp"
#include "tools/bench_driver/settings.hpp"

namespace farside::tools {

// Returns the measures that the settings choose, in the catalogue's order, without those that need more ranks than
// there are.
std::vector<const bench::MeasureInfo*> chosen_measures(const BenchSettings& settings);

// Runs all rounds of all variants of the report, and fills the rest of it. Returns false if interrupted.
bool measure_runtime(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                     Progress& progress, RuntimeReport& report);

}  // namespace farside::tools
