// SPDX-License-Identifier: BSD-3-Clause
// The files that the ranks of a launch wrote: PREFIX.RANK.EXTENSION, those of processes that MPI_Comm_spawn started
// PREFIX.spawned-PID.RANK.EXTENSION.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/job.hpp"

namespace farside::tools {

// Calls take(path, content) with each file, in no order. `extension` includes its dot. Throws std::runtime_error if the
// folder or a file cannot be read, or if there is no file, which setting `variable` to the prefix would write.
void read_rank_files(const std::string& prefix, std::string_view extension, const char* variable,
                     const std::function<void(const std::string& path, const std::string& content)>& take);

// What a file says of its launch.
struct RankFile {
  std::string path;
  Job job;
};

// Throws std::runtime_error if the files are of several launches: it says which file is of which, and what to do.
// `variable`: as above.
void check_one_launch(const std::vector<RankFile>& files, const char* variable);

// Returns a sentence that names the ranks of the launch without a file; nothing if there are none. Precondition: the
// files are of one launch.
std::string missing_ranks(const std::vector<RankFile>& files);

}  // namespace farside::tools
