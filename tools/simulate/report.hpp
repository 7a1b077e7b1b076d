// SPDX-License-Identifier: BSD-3-Clause
// The figures of many simulations: as a table, JSON, CSV, and a plot by gnuplot.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/simulate/simulation.hpp"

namespace farside::simulate {

// One simulation, and what came of it.
struct Run {
  std::string protocol;
  Settings settings;
  Figures figures;
};

std::string table(const std::vector<Run>& runs);
nlohmann::ordered_json to_json(const std::vector<Run>& runs);
std::string to_csv(const std::vector<Run>& runs);

// Draws operations and the longest waiting over the mixes, or over the ranks if there are several numbers of
// them, into `file` (.png or .svg), without the runs that were stopped. What kept it from that, or nothing.
std::string plot(const std::vector<Run>& runs, const std::string& file);

}  // namespace farside::simulate
