// SPDX-License-Identifier: BSD-3-Clause
// A plot as an SVG element, its colours left to the page (html.cpp). Each point has what it shows in data-x
// and data-y and, for people, in a <title>; the element has its scales in data-x-scale and data-y-scale: "log
// LEAST MOST FROM TO" or "linear ...", values and pixels.
#pragma once

#include <string>

#include "tools/bench_report/plots.hpp"

namespace farside::tools {

std::string svg_of(const Plot& plot);

// Text as XML and HTML want it.
std::string escaped(const std::string& text);

}  // namespace farside::tools
