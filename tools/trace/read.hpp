// SPDX-License-Identifier: BSD-3-Clause
// Reads the files of FARSIDE_TRACE=PREFIX: PREFIX.RANK.trace, one per process. Every field is checked before use,
// since a file may be truncated, from another machine, or forged.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/rank_files.hpp"
#include "transport/base/trace_format.hpp"

namespace farside::tools::trace {

// A record with its times in nanoseconds of the CLOCK_MONOTONIC of its process (TraceRecord has ticks).
struct RankTrace {
  RankFile file;
  TraceHeader header;
  std::vector<TraceRecord> records;
  std::string host;
  // Texts, without signs that change a terminal. By the numbers of windows and sites of this process.
  std::map<std::uint32_t, std::string> window_names, sites;
  std::string cpus;  // that the process may use: "0-3,8"
};

// Reads one file. Throws std::runtime_error that names the file and its error.
RankTrace parse(const std::string& file, std::string_view bytes);

// Reads all files of the prefix, ordered by rank. Throws if there is none, or if they are of several launches.
std::vector<RankTrace> read_all(const std::string& prefix);

}  // namespace farside::tools::trace
