// SPDX-License-Identifier: BSD-3-Clause
// An axis: values to pixels, and where its ticks are.
#pragma once

#include <string>
#include <vector>

namespace farside::tools {

struct Scale {
  bool logarithmic = true;
  double least = 1, most = 10;  // values at the ends; above 0 if logarithmic, and least < most
  double from = 0, to = 1;      // pixels of the ends
  double place(double value) const;
};

// The scale from `from` to `to` on which all values (above 0, at least one) lie, its ends at 1, 2 or 5 times
// a power of ten.
Scale logarithmic_scale(const std::vector<double>& values, double from, double to);
// Powers of ten, every other one if there are many; between them 2 and 5 if there are few. From least to
// most.
std::vector<double> logarithmic_ticks(const Scale& scale);

// Values with their units, as short as they can be said exactly: "8 B", "4 KiB"; "50 ms"; "0.1 us", "1 ms";
// "10 GB/s"; "200 k/s".
std::string bytes_label(double bytes);
std::string seconds_label(double seconds);
std::string microseconds_label(double microseconds);
std::string bandwidth_label(double megabytes_per_second);
std::string rate_label(double per_second);
std::string number_label(double value);

}  // namespace farside::tools
