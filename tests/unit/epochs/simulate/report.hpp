// SPDX-License-Identifier: BSD-3-Clause
// Reports of simulations: as a table, JSON, CSV, and a plot by gnuplot.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/unit/epochs/simulate/simulation.hpp"

namespace farside::simulate {

// One simulation with its figures.
struct Run {
  std::string protocol;
  Settings settings;
  Figures figures;
};

std::string table(const std::vector<Run>& runs);
nlohmann::ordered_json to_json(const std::vector<Run>& runs);
std::string to_csv(const std::vector<Run>& runs);

// Plots the operations and the longest waiting time over the mixes, or over the numbers of ranks if there are
// several, into `file` (.png or .svg). Stopped runs are left out. Returns the reason of a failure, or "".
std::string plot(const std::vector<Run>& runs, const std::string& file);

}  // namespace farside::simulate
