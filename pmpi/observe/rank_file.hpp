// SPDX-License-Identifier: BSD-3-Clause
// The files that each rank writes: PREFIX.RANK.SUFFIX, of a spawned process PREFIX.spawned-PID.RANK.SUFFIX. A file
// appears whole or not at all, because it is renamed when it is complete. Thread safety: any, after query_launch()
// (this_job.hpp).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace farside::pmpi {

// Returns whether the file was written, and else logs a warning that names `setting`.
bool write_rank_file(const char* setting, const std::string& prefix, std::string_view suffix,
                     std::span<const char> bytes);

}  // namespace farside::pmpi
