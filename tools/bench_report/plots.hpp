// SPDX-License-Identifier: BSD-3-Clause
// The plots of a result: latency and bandwidth by size, the lock by contention, progress by the target's computing
// time, message rate by ranks and by threads.
#pragma once

#include <string>
#include <vector>

#include "tools/bench_report/result.hpp"

namespace farside::tools {

struct Point {
  std::string measure;  // the measure that it comes from
  double x = 0, y = 0;
  double least = 0, most = 0;  // smallest and largest median of the runs
};

struct Line {
  std::string key;   // key of the variant, or "limit-..." for a physical limit
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

// Returns the plots of one runtime of the result, without those that have no points.
std::vector<Plot> plots_of(const Json& result, const Json& runtime);

std::string x_label(Plot::X x, double value);
std::string y_label(Plot::Y y, double value);

}  // namespace farside::tools
