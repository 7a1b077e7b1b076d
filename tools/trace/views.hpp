// SPDX-License-Identifier: BSD-3-Clause
// The forms in which `farside trace` shows a trace.
#pragma once

#include <ostream>
#include <string>

#include "tools/by.hpp"
#include "tools/trace/timeline.hpp"

namespace farside::tools::trace {

// Returns a summary for a terminal.
std::string summary(const Timeline& timeline);

// "rank 3 waited 4.1 ms for the exclusive lock of rank 0, held by rank 1 (2.0 ms), rank 2 (2.1 ms)"
std::string in_words(const Timeline& timeline, const LockWait& wait);

// "rank 2: others waited 210 ms for locks that it held (3 waits), 12 ms for it at fences (5)"
std::string in_words(const Timeline& timeline, const AwaitedProcess& awaited);

// "1.23 ms"
std::string duration(Nanoseconds time);

// Returns a table of the figures, divided by `by`, the largest times first.
//   kRank  its waits by call, its operations, and how long others waited for it
//   kSize  operations by powers of two of their bytes; those by load and store by the mean of their epoch
//   kPair  origin and target: operations, and the time of the origin
//   kSite  the place of a call in the program, if sites were recorded (FARSIDE_SITES)
std::string figures_by(const Timeline& timeline, By by);

// Writes Chrome's trace event format ("JSON object format") for chrome://tracing and ui.perfetto.dev: a process per
// rank, a thread per lane of lanes.hpp, arrows from the holder of a lock to the waiter.
void write_chrome(std::ostream& out, const Timeline& timeline);

// Writes one self-contained HTML file: page.html with the data in it. With more bars than this the shortest are left
// out, and the page says so.
inline constexpr std::size_t kMostBars = 200000;
void write_page(std::ostream& out, const Timeline& timeline, std::size_t most_bars = kMostBars);

}  // namespace farside::tools::trace
