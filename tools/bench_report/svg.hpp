// SPDX-License-Identifier: BSD-3-Clause
// Draws a plot as an SVG element; the page (html.cpp) has the colours. Each point has its values in data-x, data-y
// and, for the reader, in a <title>. The element has its scales in data-x-scale and data-y-scale: "log LEAST MOST
// FROM TO" or "linear ...", in values and pixels.
#pragma once

#include <string>

#include "tools/bench_report/plots.hpp"

namespace farside::tools {

std::string svg_of(const Plot& plot);

// Escapes text for XML and HTML.
std::string escaped(const std::string& text);

}  // namespace farside::tools
