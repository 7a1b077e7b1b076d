// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_report/svg.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/bench_report/scale.hpp"

namespace farside::tools {
namespace {

constexpr double kWidth = 600, kPlotHeight = 300;
constexpr double kLeft = 84, kRight = 20, kTop = 14, kBelowAxis = 52, kLegendRow = 20;
constexpr double kMark = 4;  // half the size of a point

// Each variant has its own mark, so that colour is not the only distinction.
std::string mark(const std::string& key, double x, double y) {
  const auto polygon = [](std::initializer_list<std::pair<double, double>> corners) {
    std::string text;
    for (const auto& [a, b] : corners) text += fmt::format("{}{:.2f},{:.2f}", text.empty() ? "" : " ", a, b);
    return fmt::format("<polygon points=\"{}\"/>", text);
  };
  const double m = kMark;
  if (key == "node") return fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\"/>", x, y, m);
  if (key == "unchecked")
    return fmt::format("<circle class=\"hollow\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\"/>", x, y, m);
  if (key == "fabric")
    return fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{}\" height=\"{}\"/>", x - m, y - m, 2 * m, 2 * m);
  if (key == "sm") return polygon({{x - m, y + m}, {x + m, y + m}, {x, y - m}});
  if (key == "rdma") return polygon({{x - m, y - m}, {x + m, y - m}, {x, y + m}});
  if (key == "pt2pt")
    return fmt::format("<path d=\"M{:.2f} {:.2f}h{}M{:.2f} {:.2f}v{}\"/>", x - m - 1, y, 2 * m + 2, x, y - m - 1,
                       2 * m + 2);
  if (key == "ucx") return polygon({{x - m - 1, y}, {x, y - m - 1}, {x + m + 1, y}, {x, y + m + 1}});
  return fmt::format("<path d=\"M{:.2f} {:.2f}l{} {}m0 {}l{} {}\"/>", x - m, y - m, 2 * m, 2 * m, -2 * m, -2 * m,
                     2 * m);
}

bool is_limit(const Line& line) { return line.key.starts_with("limit-"); }

Scale x_scale(const Plot& plot) {
  std::set<double> values;
  for (const Line& line : plot.lines)
    for (const Point& point : line.points) values.insert(point.x);
  Scale scale{plot.x != Plot::X::kThreads, *values.begin(), *values.rbegin(), kLeft + 16, kWidth - kRight - 16};
  if (!(scale.least < scale.most)) scale.most = 2 * scale.least;
  return scale;
}

Scale y_scale(const Plot& plot) {
  std::vector<double> values;
  for (const Line& line : plot.lines)
    for (const Point& point : line.points) values.insert(values.end(), {point.least, point.most});
  return logarithmic_scale(values, kTop + kPlotHeight, kTop);
}

std::string scale_text(const Scale& scale) {
  return fmt::format("{} {} {} {} {}", scale.logarithmic ? "log" : "linear", scale.least, scale.most, scale.from,
                     scale.to);
}

std::string axes(const Plot& plot, const Scale& x, const Scale& y) {
  const double bottom = kTop + kPlotHeight;
  std::string text;
  for (const double value : logarithmic_ticks(y)) {
    const double at = y.place(value);
    text += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>"
        "<text class=\"tick y\" x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\" dy=\"0.32em\">{}</text>\n",
        kLeft, kWidth - kRight, at, at, kLeft - 8, at, y_label(plot.y, value));
  }
  std::set<double> ticks;
  for (const Line& line : plot.lines) {
    if (is_limit(line)) continue;
    for (const Point& point : line.points) ticks.insert(point.x);
  }
  double free_from = 0;  // the end of the previous label
  for (const double value : ticks) {
    const double at = x.place(value);
    text += fmt::format("<line class=\"grid\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\"/>", at, bottom,
                        bottom + 5);
    const std::string label = x_label(plot.x, value);
    const double half = 3.6 * static_cast<double>(label.size());
    if (at - half < free_from) continue;
    free_from = at + half + 6;
    text += fmt::format("<text class=\"tick x\" x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", at,
                        bottom + 20, label);
  }
  text += fmt::format("<path class=\"axis\" d=\"M{} {}V{}H{}\"/>\n", kLeft, kTop, bottom, kWidth - kRight);
  text += fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                      (kLeft + kWidth - kRight) / 2, bottom + 42, escaped(plot.x_title));
  text +=
      fmt::format("<text class=\"name\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                  kTop + kPlotHeight / 2, escaped(plot.y_title));
  return text;
}

std::string drawn(const Plot& plot, const Line& line, const Scale& x, const Scale& y) {
  std::string path;
  for (const Point& point : line.points)
    path += fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", x.place(point.x), y.place(point.y));
  std::string text = fmt::format("<g class=\"line {}\"><path class=\"way\" d=\"{}\"/>\n", line.key, path);
  for (const Point& point : line.points) {
    if (point.measure.empty()) continue;
    const double at = x.place(point.x);
    if (point.most > point.least) {
      text += fmt::format("<line class=\"range\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.2f}\" y2=\"{2:.2f}\"/>", at,
                          y.place(point.least), y.place(point.most));
    }
    text += fmt::format(
        "<g class=\"point\" data-measure=\"{}\" data-x=\"{}\" data-y=\"{}\" data-at=\"{:.2f} {:.2f}\">"
        "<title>{}, {}: {} (runs: {} to {})</title>{}</g>\n",
        point.measure, point.x, point.y, at, y.place(point.y), escaped(line.name), x_label(plot.x, point.x),
        fmt::format("{:.3g} {}", point.y,
                    plot.y == Plot::Y::kMicroseconds ? "us"
                    : plot.y == Plot::Y::kMegabytes  ? "MB/s"
                                                     : "/s"),
        fmt::format("{:.3g}", point.least), fmt::format("{:.3g}", point.most),
        is_limit(line)
            ? fmt::format("<circle class=\"spot\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2\"/>", at, y.place(point.y))
            : mark(line.key, at, y.place(point.y)));
  }
  return text + "</g>\n";
}

// Draws the names below the plot, in two columns unless one name is too long.
std::size_t legend_columns(const Plot& plot) {
  std::size_t longest = 0;
  for (const Line& line : plot.lines) longest = std::max(longest, line.name.size());
  return longest <= 36 ? 2 : 1;
}

std::string legend(const Plot& plot) {
  const std::size_t columns = legend_columns(plot);
  const double first = kTop + kPlotHeight + kBelowAxis + 12;
  const double width = (kWidth - 24) / static_cast<double>(columns);
  std::string text;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Line& line = plot.lines[i];
    const double left = 24 + width * static_cast<double>(i % columns);
    const double y = first + kLegendRow * static_cast<double>(i / columns);
    text += fmt::format(
        "<g class=\"line {0}\"><path class=\"way\" d=\"M{1} {2}h28\"/>{3}</g>"
        "<text class=\"legend\" x=\"{4}\" y=\"{2}\" dy=\"0.34em\">{5}</text>\n",
        line.key, left, y, is_limit(line) ? "" : mark(line.key, left + 14, y), left + 36, escaped(line.name));
  }
  return text;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char byte : text) {
    switch (byte) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += byte;
    }
  }
  return result;
}

std::string svg_of(const Plot& plot) {
  const Scale x = x_scale(plot);
  const Scale y = y_scale(plot);
  const std::size_t columns = legend_columns(plot);
  const std::size_t rows = (plot.lines.size() + columns - 1) / columns;
  const double height = kTop + kPlotHeight + kBelowAxis + 12 + kLegendRow * static_cast<double>(rows);
  std::string text = fmt::format(
      "<svg class=\"plot\" data-plot=\"{}\" data-x-scale=\"{}\" data-y-scale=\"{}\" viewBox=\"0 0 {} {}\" "
      "role=\"img\" "
      "aria-label=\"{}\">\n",
      plot.id, scale_text(x), scale_text(y), kWidth, height, escaped(plot.title));
  text += axes(plot, x, y);
  for (const Line& line : plot.lines) text += drawn(plot, line, x, y);
  return text + legend(plot) + "</svg>\n";
}

}  // namespace farside::tools
