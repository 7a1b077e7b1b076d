// SPDX-License-Identifier: BSD-3-Clause
// The command line and the output of the benchmark program. Uses no MPI.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/catalogue.hpp"

namespace farside::bench {

enum class WindowKind { kAllocate, kCreate };

struct Options {
  std::vector<const MeasureInfo*> measures;  // in the catalogue's order; main() skips those that need more ranks
  WindowKind window = WindowKind::kAllocate;
  std::string provider = "tcp;ofi_rxm";  // of bare libfabric
  double compute_seconds = 2.0;          // time for which a computing target stays out of MPI
  double sleep_seconds = 0.5;            // the same for a sleeping target
  double sample_seconds = 0.2;           // time of all samples of one measure
};

// Reads the command line. If the program has to end at once (--help, an error), the result is empty. If
// `speaks` is true, the function prints the text and sets `exit_code`. Otherwise the exit code is 0: a launcher ends
// all ranks when one fails, perhaps before the rank that prints has printed.
std::optional<Options> read_options(int argc, char** argv, bool speaks, int& exit_code);

// The benchmark's output on stdout: one JSON object per line, flushed at once, so that the reader knows how far the
// program came even if it dies.
//
//   {"hello": "farside-bench", "library": "Open MPI v4.1.4", "nodes": 1, "hosts": [...]}
//   {"begin": "put_flush"}
//   {"opened": "fabric", "provider": "verbs", "device": "mlx5_0"}
//   {"measure": "put_flush", "unit": "us", "median": 0.09, "mean": 0.1, "p90": 0.11, "p99": 0.3, "samples": 211,
//    "preempted": 0.00001}
//   {"begin": "get_flush"}
//   {"measure": "get_flush", "error": "rank 0: get 1 returned 0, not 42"}
//   {"end": true}

// `library`: the name and version of the MPI library. `hosts`: of each node, what host_facts() returns, as text.
void print_hello(const std::string& library, const std::vector<std::string>& hosts);
void print_begin(std::string_view measure);
// Reports a new window; `route` is its route to the other ranks, empty if the window does not report one; the other
// two are libfabric's, empty if the route needs none.
void print_opened(std::string_view route, std::string_view provider, std::string_view device);
// `values` are in the measure's unit, one per sample, and not empty. `preempted`: see Outcome.
void print_result(const MeasureInfo& measure, std::vector<double> values, double preempted);
void print_error(std::string_view measure, std::string_view what);
void print_end();

}  // namespace farside::bench
