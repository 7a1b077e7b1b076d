// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_report/scale.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace farside::tools {
namespace {

constexpr double kSteps[] = {1, 2, 5};

// Values that differ from a power of ten by rounding errors count as that power.
constexpr double kHair = 1e-9;

std::string scaled(double value, std::initializer_list<std::pair<double, const char*>> units) {
  for (const auto& [size, name] : units) {
    if (value >= size * (1 - kHair)) return fmt::format("{:.6g} {}", value / size, name);
  }
  const auto& [size, name] = *(units.end() - 1);
  return fmt::format("{:.6g} {}", value / size, name);
}

}  // namespace

double Scale::place(double value) const {
  const double share =
      logarithmic ? std::log(value / least) / std::log(most / least) : (value - least) / (most - least);
  return from + share * (to - from);
}

Scale logarithmic_scale(const std::vector<double>& values, double from, double to) {
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  const double below = std::pow(10, std::floor(std::log10(*smallest) + kHair));
  const double above = std::pow(10, std::floor(std::log10(*largest) - kHair));
  Scale scale{true, below, 10 * above, from, to};
  for (const double step : kSteps) {
    if (step * below <= *smallest * (1 + kHair)) scale.least = step * below;
  }
  for (const double step : {5.0, 2.0}) {
    if (step * above >= *largest * (1 - kHair)) scale.most = step * above;
  }
  if (scale.most <= scale.least * (1 + kHair)) scale.most = 10 * scale.least;
  return scale;
}

std::vector<double> logarithmic_ticks(const Scale& scale) {
  const double decades = std::log10(scale.most / scale.least);
  const int first = static_cast<int>(std::floor(std::log10(scale.least) + kHair));
  const int last = static_cast<int>(std::ceil(std::log10(scale.most) - kHair));
  const int stride = decades > 8 ? 2 : 1;
  std::vector<double> ticks;
  for (int power = first; power <= last; power += stride) {
    for (const double step : kSteps) {
      if (step > 1 && decades > 3) continue;
      const double value = step * std::pow(10, power);
      if (value >= scale.least * (1 - kHair) && value <= scale.most * (1 + kHair)) ticks.push_back(value);
    }
  }
  return ticks;
}

std::string bytes_label(double bytes) { return scaled(bytes, {{1048576, "MiB"}, {1024, "KiB"}, {1, "B"}}); }
std::string seconds_label(double seconds) { return scaled(seconds, {{1, "s"}, {1e-3, "ms"}}); }
std::string microseconds_label(double microseconds) {
  return scaled(microseconds, {{1e6, "s"}, {1e3, "ms"}, {1, "us"}, {1e-3, "ns"}});
}
std::string bandwidth_label(double megabytes_per_second) {
  return scaled(megabytes_per_second, {{1e3, "GB/s"}, {1, "MB/s"}, {1e-3, "kB/s"}});
}
std::string rate_label(double per_second) { return scaled(per_second, {{1e6, "M/s"}, {1e3, "k/s"}, {1, "/s"}}); }
std::string number_label(double value) { return fmt::format("{:.6g}", value); }

}  // namespace farside::tools
