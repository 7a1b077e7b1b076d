// SPDX-License-Identifier: BSD-3-Clause
// Reads what FARSIDE_TRACE=PREFIX leaves: PREFIX.RANK.trace, one per process. What it says of itself is
// believed only after it was checked: a file may be cut short, of another machine, or of somebody else's
// making.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/trace_format.hpp"

namespace farside::tools::trace {

// A record with its times in nanoseconds on the CLOCK_MONOTONIC of its process (where TraceRecord has ticks).
struct RankTrace {
  std::string file;
  TraceHeader header;
  std::vector<TraceRecord> records;
  std::string host;
};

// Throws std::runtime_error, which names the file and what is wrong with it.
RankTrace parse(const std::string& file, std::string_view bytes);

// All files of the prefix, in the order of ranks. Throws if there is none.
std::vector<RankTrace> read_all(const std::string& prefix);

}  // namespace farside::tools::trace
