// SPDX-License-Identifier: BSD-3-Clause
// A trace in Chrome's trace event format ("JSON object format"), which chrome://tracing and ui.perfetto.dev
// open: a process per rank, a thread per line of lanes.hpp, arrows from who held a lock to who waited for it.
#pragma once

#include <ostream>

#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

void write_chrome(std::ostream& out, const Timeline& timeline);

}  // namespace farside::tools::trace
