// SPDX-License-Identifier: BSD-3-Clause
// The result of `farside bench` as JSON: the output of --json, and the source of all other reports. Version 2:
//
//   farside_bench     the version of the format
//   farside, date, command, libfabric
//   headline          what was measured, in words (older results lack it)
//   machine           host, system, kernel, processor, threads, memory_bytes
//   settings          window, provider, rounds, ranks, compute_seconds, launcher, hosts, launcher_options
//   hosts[]           of the ranks' nodes: see hosts/host_facts.hpp
//   left_out[]        runtime, variant (empty: all of the runtime), reason
//   variants[]        variant, title, native
//   runtimes[]        runtime, version, launcher, library, warnings[], taken, measures[]
//     taken           by variants: {provider, device, passed_over}, what farside took between nodes, at rank 0
//     measures[]      measure, title, unit (us, MB/s, 1/s, count, ratio), better (less, more), group, x, bare,
//                     variants: by their keys {verdict, reason, median, doubtful, runs[]}
//       runs[]        median, min, p90, samples, preempted, left_out
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench_driver/series.hpp"
#include "tools/bench_driver/settings.hpp"
#include "tools/json.hpp"

namespace farside::tools {

// `command`: the command line of the user.
Json to_json(const BenchSettings& settings, const std::string& command,
             const std::vector<const bench::MeasureInfo*>& measures, const std::vector<RuntimeReport>& reports,
             const std::vector<LeftOut>& left_out);

// Returns CSV with one line per run: runtime, measure, variant, figures.
std::string to_csv(const Json& result);

// Reads the output of --json. Throws std::runtime_error that says what is wrong with the file.
Json read_result(const std::string& file);

// Returns a self-contained HTML page, which draws the plots and tables of the result (report.html).
std::string html_report(const Json& result);

// Returns the median of a figure; nothing if it was not measured.
std::optional<double> median_in(const Json& figure);
bench::Unit unit_of(const Json& measure);

}  // namespace farside::tools
