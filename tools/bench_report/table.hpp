// SPDX-License-Identifier: BSD-3-Clause
// Prints the table of one runtime for a terminal, and below it comparisons of its figures.
#pragma once

#include <vector>

#include "tools/bench_driver/series.hpp"
#include "tools/bench_driver/settings.hpp"

namespace farside::tools {

void print_table(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                 const RuntimeReport& report);

}  // namespace farside::tools
