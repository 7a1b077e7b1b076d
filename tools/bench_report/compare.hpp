// SPDX-License-Identifier: BSD-3-Clause
// Compares two results of `farside bench`. A change counts if it is larger than the noise, which is the difference
// among the runs of one result:
//
//   change  of the medians, as a factor; above 1 is slower
//   noise   (largest / smallest run median of A) x (the same of B), and at least 1 + threshold;
//           if a result has only one run, its noise is unknown and counts as a factor of 2
//
// A change that counts therefore leaves a gap between all runs of A and all runs of B.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

enum class Change { kNone, kRegression, kImprovement, kLost, kRegained, kOnlyA, kOnlyB };
std::string_view change_name(Change change);  // "", "REGRESSION", "improvement", "LOST", ...

struct Comparison {
  std::string runtime{}, measure{}, title{}, variant{};
  bench::Unit unit = bench::Unit::kMicroseconds;
  bool native = false;  // native or bare: a figure that farside cannot change
  std::optional<double> a{}, b{};
  bool doubtful_a = false, doubtful_b = false;  // shown by "~"
  double factor = 1;  // above 1: B is slower
  double noise = 1;
  Change change = Change::kNone;

  bool worse() const { return change == Change::kRegression || change == Change::kLost; }
  bool better() const { return change == Change::kImprovement; }
  bool only_in_one() const { return change == Change::kOnlyA || change == Change::kOnlyB; }
};

// kLost: the measure was measured in A, and crashed or failed in B. `threshold`: a smaller change never counts.
std::vector<Comparison> compare(const Json& a, const Json& b, double threshold);

// Returns the other differences between the two (machine, versions, settings), one line each.
std::vector<std::string> differences(const Json& a, const Json& b);

// Prints the table for a terminal: only the changed figures unless `all`.
std::string comparison_text(const std::vector<Comparison>& comparisons, bool all);

}  // namespace farside::tools
