// SPDX-License-Identifier: BSD-3-Clause
// The files that the ranks of a launch wrote: PREFIX.RANK.EXTENSION, those of processes that MPI_Comm_spawn started
// PREFIX.spawned-PID.RANK.EXTENSION.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/trace.hpp"

namespace farside::tools {

// Calls take(path, content) with each file, in no order. `prefix` may be one of the files instead; `extension` includes
// its dot. Returns the reasons of files that cannot be read, or that `take` refused by a std::runtime_error. Throws one
// if the folder cannot be read, if all files are refused, or if there is none, which setting `variable` to the prefix
// would write.
std::vector<std::string> read_rank_files(
    const std::string& prefix, std::string_view extension, const char* variable,
    const std::function<void(const std::string& path, const std::string& content)>& take);

// The launch that a file belongs to.
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

// Where the ranks of a launch ran, and whether they had a core each.
class Placement {
 public:
  // Adds a process. `cpus`: the CPUs that it may use, as Linux lists them, "0-3,8"; empty: unknown.
  void add(const std::string& host, std::string_view cpus);
  // Returns a sentence for each host with more processes than CPUs that they may use together.
  std::vector<std::string> oversubscribed() const;

 private:
  struct Host {
    std::size_t processes = 0;
    std::set<int> cpus;
    bool known = true;
  };
  std::map<std::string, Host> hosts_;
};

}  // namespace farside::tools
