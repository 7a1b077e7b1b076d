// SPDX-License-Identifier: BSD-3-Clause
// Writes a trace as one self-contained HTML file: page.html with the data in it.
#pragma once

#include <ostream>

#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

// With more bars than this the shortest are left out, and the page says so.
inline constexpr std::size_t kMostBars = 200000;

void write_page(std::ostream& out, const Timeline& timeline, std::size_t most_bars = kMostBars);

}  // namespace farside::tools::trace
