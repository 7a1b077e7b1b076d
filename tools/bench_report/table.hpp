// SPDX-License-Identifier: BSD-3-Clause
// The table of one runtime for a terminal, and below it comparisons of its figures.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_driver/series.hpp"
#include "tools/bench_driver/settings.hpp"

namespace farside::tools {

std::string table_text(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                       const RuntimeReport& report);

}  // namespace farside::tools
