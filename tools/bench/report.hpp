// SPDX-License-Identifier: BSD-3-Clause
// The benchmark's output on stdout: one JSON object per line, flushed at once, so that the reader knows how far the
// program came even if it dies. Uses no MPI.
//
//   {"hello": "farside-bench", "library": "Open MPI v4.1.4", "ranks": 2, "nodes": 1, "hosts": [...], ...}
//   {"begin": "put_flush"}
//   {"opened": "fabric", "provider": "verbs", "device": "mlx5_0"}
//   {"measure": "put_flush", "unit": "us", "median": 0.09, "min": 0.08, "p90": 0.11, "samples": 211,
//    "preempted": 0.00001}
//   {"begin": "get_flush"}
//   {"measure": "get_flush", "error": "rank 0: get 1 returned 0, not 42"}
//   {"end": true}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/options.hpp"

namespace farside::bench {

// `library`: the name and version of the MPI library. `hosts`: of each node, what host_facts() returns, as text.
void print_hello(const std::string& library, int ranks, const std::vector<std::string>& hosts, const Options& options);
void print_begin(std::string_view measure);
// Reports a new window; `route` is its route to the other ranks, empty if the window does not report one; the other
// two are libfabric's, empty if the route needs none.
void print_opened(std::string_view route, std::string_view provider, std::string_view device);
// `values` are in the measure's unit, one per sample, and not empty. `preempted`: see Outcome.
void print_result(const MeasureInfo& measure, std::vector<double> values, double preempted);
void print_error(std::string_view measure, std::string_view what);
void print_end();

}  // namespace farside::bench
