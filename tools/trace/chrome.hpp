// SPDX-License-Identifier: BSD-3-Clause
// Writes a trace in Chrome's trace event format ("JSON object format") for chrome://tracing and ui.perfetto.dev: a
// process per rank, a thread per lane of lanes.hpp, arrows from the holder of a lock to the waiter.
#pragma once

#include <ostream>

#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

void write_chrome(std::ostream& out, const Timeline& timeline);

}  // namespace farside::tools::trace
