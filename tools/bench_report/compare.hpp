// SPDX-License-Identifier: BSD-3-Clause
// Two results of `farside bench` against each other. A change counts where it is larger than the noise, and
// the noise is what the runs of one result differ by among themselves:
//
//   change  of the medians, as a factor; above 1 is slower
//   noise   (largest / smallest run median of A) x (the same of B), and at least 1 + threshold; where a
//   result has one
//           run only, its noise is not known and counts as a factor of 2
//
// So a change that counts leaves a gap between all runs of A and all runs of B.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

enum class Change { kNone, kRegression, kImprovement, kLost, kRegained, kOnlyA, kOnlyB };
std::string_view change_name(Change change);  // "", "REGRESSION", "improvement", "LOST", ...

struct Comparison {
  std::string runtime, measure, title, variant;
  bench::Unit unit = bench::Unit::kMicroseconds;
  bool native = false;  // or bare: what farside cannot change
  std::optional<double> a, b;
  double factor = 1;  // above 1: B is slower
  double noise = 1;
  Change change = Change::kNone;
};

// kLost: measured in A, and in B it crashed or the like. `threshold`: a change of less than this share never
// counts.
std::vector<Comparison> compare(const Json& a, const Json& b, double threshold);

// What else differs between the two (machine, versions, settings), a line for each.
std::vector<std::string> differences(const Json& a, const Json& b);

// The table, for a terminal; only those that changed unless `all`.
std::string comparison_text(const std::vector<Comparison>& comparisons, bool all);

}  // namespace farside::tools
