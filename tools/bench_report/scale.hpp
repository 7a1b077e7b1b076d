// SPDX-License-Identifier: BSD-3-Clause
// An axis: it maps values to pixels and chooses the ticks.
#pragma once

#include <string>
#include <vector>

namespace farside::tools {

struct Scale {
  bool logarithmic = true;
  double least = 1, most = 10;  // values at the ends: least < most, both above 0 if logarithmic
  double from = 0, to = 1;      // pixels at the ends
  double place(double value) const;
};

// Returns a scale from `from` to `to` that contains all values (above 0, at least one). Its ends are 1, 2 or 5 times
// a power of ten.
Scale logarithmic_scale(const std::vector<double>& values, double from, double to);
// Returns the ticks in ascending order: powers of ten, every second one if there are many, also 2 and 5 if there are
// few.
std::vector<double> logarithmic_ticks(const Scale& scale);

// Format values with their units, exactly and as short as possible: "8 B", "4 KiB"; "50 ms"; "0.1 us", "1 ms"; "10
// GB/s"; "200 k/s".
std::string bytes_label(double bytes);
std::string seconds_label(double seconds);
std::string microseconds_label(double microseconds);
std::string bandwidth_label(double megabytes_per_second);
std::string rate_label(double per_second);
std::string number_label(double value);

}  // namespace farside::tools
