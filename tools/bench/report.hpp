// SPDX-License-Identifier: BSD-3-Clause
// The result of `farside bench` as JSON: the output of --json, and the source of all other reports. Version 2:
//
//   farside_bench     the version of the format
//   farside, date, command, libfabric
//   headline          what was measured, in words
//   machine           host, system, kernel, processor, threads, memory_bytes
//   settings          window, provider, rounds, ranks, compute_seconds, launcher, hosts, launcher_options
//   hosts[]           of the ranks' nodes: see common/host.hpp
//   left_out[]        runtime, reason
//   variants[]        variant, title, native
//   runtimes[]        runtime, version, launcher, library, warnings[], taken, measures[]
//     taken           by variants: {provider, device, passed_over}, what farside took between nodes, at rank 0
//     measures[]      measure, title, unit (us, MB/s, 1/s, ratio), better (less, more), group, x, bare,
//                     variants: by their keys {verdict, reason, median, doubtful, runs[]}
//       runs[]        median, mean, p90, p99, samples, preempted, left_out
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/driver.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {

// `command`: the command line of the user.
Json to_json(const BenchSettings& settings, const std::string& command,
             const std::vector<const bench::MeasureInfo*>& measures, const std::vector<RuntimeReport>& reports,
             const std::vector<LeftOut>& left_out);

// Reads the output of --json. Throws std::runtime_error that says what is wrong with the file.
Json read_result(const std::string& file);

// Returns a self-contained HTML page, which draws the plots and tables of the result (report.html).
std::string html_report(const Json& result);

// Returns the median of a figure; nothing if it was not measured.
std::optional<double> median_in(const Json& figure);
bench::Unit unit_of(const Json& measure);

// Says in words what a result of `farside bench` has measured, of which runtimes, where and how often. Throws a json
// exception if the result lacks something.
std::string headline(const Json& result);

// Compares two results of `farside bench`. A change counts if it is larger than the noise, which is the difference
// among the runs of one result:
//
//   change  of the medians, as a factor; above 1 is slower
//   noise   (largest / smallest run median of A) x (the same of B), and at least 1 + threshold;
//           if a result has only one run, its noise is unknown and counts as a factor of 2
//
// A change that counts therefore leaves a gap between all runs of A and all runs of B.
enum class Change { kNone, kRegression, kImprovement, kLost, kRegained, kOnlyA, kOnlyB };
std::string_view change_name(Change change);  // "", "REGRESSION", "improvement", "LOST", ...

struct Comparison {
  std::string runtime{}, measure{}, title{}, variant{};
  bench::Unit unit = bench::Unit::kMicroseconds;
  bool native = false;  // native or bare: a figure that farside cannot change
  std::optional<double> a{}, b{};
  bool doubtful_a = false, doubtful_b = false;  // shown by "~"
  double factor = 1;                            // above 1: B is slower
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

// The table of one runtime for a terminal.
std::string table_text(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                       const RuntimeReport& report);

// Put and get by size, of each variant, in the layout of OSU's benchmarks with percentiles.
std::string osu_text(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
                     const RuntimeReport& report);

}  // namespace farside::tools
