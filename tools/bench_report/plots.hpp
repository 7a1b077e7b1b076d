// SPDX-License-Identifier: BSD-3-Clause
// Which plots a result has: latency and bandwidth by size, the lock by contention, progress by the time that
// the target computes, message rate by ranks and by threads.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

struct Point {
  std::string measure;  // where it is from
  double x = 0, y = 0;
  double least = 0, most = 0;  // of the medians of the runs
};

struct Line {
  std::string key;   // of the variant, or "limit-..." for what nothing can be faster than
  std::string name;  // for the legend
  std::vector<Point> points;
};

struct Plot {
  enum class X { kBytes, kRanks, kThreads, kSeconds };
  enum class Y { kMicroseconds, kMegabytes, kPerSecond };
  std::string id;  // openmpi-latency-put
  std::string title;
  std::string x_title, y_title;
  X x = X::kBytes;
  Y y = Y::kMicroseconds;
  std::vector<Line> lines;
};

// Those that have points, of one of the result's runtimes.
std::vector<Plot> plots_of(const Json& result, const Json& runtime);

std::string x_label(Plot::X x, double value);
std::string y_label(Plot::Y y, double value);

}  // namespace farside::tools
