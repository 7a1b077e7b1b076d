// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_report/plots.hpp"

#include <algorithm>
#include <string_view>

#include "tools/bench_report/scale.hpp"

namespace farside::tools {
namespace {

struct Kind {
  std::string_view id, title, group, bare_group;
  Plot::X x;
  Plot::Y y;
  std::string_view x_title, y_title;
};

constexpr Kind kKinds[] = {
    {"latency-put", "Put and flush: latency by size", "put_size", "bare_write_size", Plot::X::kBytes,
     Plot::Y::kMicroseconds, "size", "time of put + flush"},
    {"bandwidth-put", "Put and flush: bandwidth by size", "put_size", "bare_write_size", Plot::X::kBytes,
     Plot::Y::kMegabytes, "size", "size / time"},
    {"latency-get", "Get and flush: latency by size", "get_size", "bare_read_size", Plot::X::kBytes,
     Plot::Y::kMicroseconds, "size", "time of get + flush"},
    {"bandwidth-get", "Get and flush: bandwidth by size", "get_size", "bare_read_size", Plot::X::kBytes,
     Plot::Y::kMegabytes, "size", "size / time"},
    {"contention", "Lock, put, unlock: latency by contention", "contention", "", Plot::X::kRanks,
     Plot::Y::kMicroseconds, "ranks that lock the same target", "mean time of lock-put-unlock"},
    {"progress", "Lock, put, unlock: latency while the target computes", "progress", "", Plot::X::kSeconds,
     Plot::Y::kMicroseconds, "time that the target computes", "time of lock-put-unlock"},
    {"rate", "Puts of 8 B, 64 per flush: rate by ranks", "rate", "", Plot::X::kRanks, Plot::Y::kPerSecond,
     "ranks that put", "puts per second, all ranks"},
    {"threads-put", "Put and flush: rate by threads", "threads_put", "", Plot::X::kThreads, Plot::Y::kPerSecond,
     "threads of the origin", "operations per second, all threads"},
    {"threads-fetch", "Fetch_and_op and flush: rate by threads", "threads_fetch", "", Plot::X::kThreads,
     Plot::Y::kPerSecond, "threads of the origin", "operations per second, all threads"},
};

// Converts a figure of `measure` (microseconds or MB/s) to the unit of the plot. If the two differ, x is in bytes,
// and 1 MB/s is one byte per microsecond.
double as_shown(const Kind& kind, const Json& measure, double value) {
  const bool is_bandwidth = measure.at("unit") == "MB/s";
  if (kind.x != Plot::X::kBytes || is_bandwidth == (kind.y == Plot::Y::kMegabytes)) return value;
  return measure.at("x").get<double>() / value;
}

Line line_of(const Kind& kind, std::string_view group, const Json& runtime, const std::string& variant) {
  Line line;
  for (const Json& measure : runtime.at("measures")) {
    const double x = measure.at("x");
    if (measure.at("group") != group || !(x > 0)) continue;
    const Json* figure = find_figure(measure, variant);
    const auto median = median_in(figure);
    if (!median || !(*median > 0)) continue;
    Point point{measure.at("measure"), x, as_shown(kind, measure, *median), 0, 0};
    point.least = point.most = point.y;
    for (const Json& run : figure->at("runs")) {
      const double one = run.at("median");
      if (run.at("left_out").get<bool>() || !(one > 0)) continue;
      point.least = std::min(point.least, as_shown(kind, measure, one));
      point.most = std::max(point.most, as_shown(kind, measure, one));
    }
    line.points.push_back(std::move(point));
  }
  std::sort(line.points.begin(), line.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return line;
}

// Returns a limit that does not depend on x; `x` are the ends of the plot.
Line level(const Json& runtime, std::string_view name, const std::vector<double>& x) {
  Line line;
  for (const Json& measure : runtime.at("measures")) {
    if (measure.at("measure") != name) continue;
    line.name = measure.at("title");
    for (const auto& [variant, figure] : measure.at("variants").items()) {
      if (const auto median = median_in(&figure); median && *median > 0) {
        for (const double at : x) line.points.push_back({std::string(name), at, *median, *median, *median});
        return line;
      }
    }
  }
  return line;
}

void add(Plot& plot, Line line, const std::string& key, const std::string& name) {
  if (line.points.empty()) return;
  line.key = key;
  if (!name.empty()) line.name = name;
  plot.lines.push_back(std::move(line));
}

void add_limits(const Kind& kind, const Json& runtime, Plot& plot) {
  if (!kind.bare_group.empty()) {
    const std::string operation =
        kind.bare_group == "bare_read_size" ? "bare libfabric: read" : "bare libfabric: write";
    add(plot, line_of(kind, kind.bare_group, runtime, "fabric"), "limit-fabric", operation);
    add(plot, line_of(kind, "bare_copy_size", runtime, "node"), "limit-memory", "bare memory: memcpy");
  }
  double least = plot.lines.front().points.front().x, most = least;
  for (const Line& line : plot.lines) {
    least = std::min(least, line.points.front().x);
    most = std::max(most, line.points.back().x);
  }
  if (kind.id == "contention" || kind.id == "progress")
    add(plot, level(runtime, "bare_lock", {least, most}), "limit-memory", "bare memory: two atomics, a store");
  if (kind.id == "progress") {
    Line waits;
    for (const double x : {least, most}) waits.points.push_back({"", x, x * 1e6, x * 1e6, x * 1e6});
    add(plot, std::move(waits), "limit-wait", "as long as the target computes");
  }
}

}  // namespace

std::vector<Plot> plots_of(const Json& result, const Json& runtime) {
  std::vector<Plot> plots;
  for (const Kind& kind : kKinds) {
    Plot plot;
    plot.id = runtime.at("runtime").get<std::string>() + "-" + std::string(kind.id);
    plot.title = kind.title;
    plot.x_title = kind.x_title;
    plot.y_title = kind.y_title;
    plot.x = kind.x;
    plot.y = kind.y;
    for (const Json& variant : result.at("variants")) {
      const std::string key = variant.at("variant");
      add(plot, line_of(kind, kind.group, runtime, key), key, variant.at("title"));
    }
    if (plot.lines.empty()) continue;
    // One size is no curve. The default selection has two, which are enough to be drawn.
    const bool curve =
        std::any_of(plot.lines.begin(), plot.lines.end(), [](const Line& line) { return line.points.size() > 1; });
    if (!curve) continue;
    add_limits(kind, runtime, plot);
    plots.push_back(std::move(plot));
  }
  return plots;
}

std::string x_label(Plot::X x, double value) {
  switch (x) {
    case Plot::X::kBytes: return bytes_label(value);
    case Plot::X::kSeconds: return seconds_label(value);
    case Plot::X::kRanks:
    case Plot::X::kThreads: break;
  }
  return number_label(value);
}

std::string y_label(Plot::Y y, double value) {
  switch (y) {
    case Plot::Y::kMicroseconds: return microseconds_label(value);
    case Plot::Y::kMegabytes: return bandwidth_label(value);
    case Plot::Y::kPerSecond: return rate_label(value);
  }
  return {};
}

}  // namespace farside::tools
