// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/descriptor_limit.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "transport/base/log.hpp"

namespace farside {
namespace {

std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/thread-self/fd"), ::closedir);
  std::size_t count = 0;
  while (folder != nullptr && ::readdir(folder.get()) != nullptr) ++count;
  return count > 3 ? count - 3 : 0;  // ".", ".." and the folder itself
}

std::uint64_t files_of_node() {
  std::uint64_t most = 0;
  return std::ifstream("/proc/sys/fs/file-max") >> most ? most : UINT64_MAX;
}

}  // namespace

DescriptorLimit::DescriptorLimit() : open_(open_descriptors()), of_node_(files_of_node()) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_ = limit.rlim_max;
  allowed_ = connections_within(limit.rlim_cur, open_);
}

bool DescriptorLimit::raise(std::size_t connections) {
  constexpr rlim_t kLeast = 64;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_ = limit.rlim_max;
  const rlim_t before = limit.rlim_cur;
  do {
    limit.rlim_cur = limit.rlim_cur > limit.rlim_max / 2 ? limit.rlim_max : std::max(2 * limit.rlim_cur, kLeast);
    limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  } while (connections_within(limit.rlim_cur, open_) < connections && limit.rlim_cur < limit.rlim_max);
  if (before >= limit.rlim_max || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    allowed_ = SIZE_MAX;  // there are no more
    return false;
  }
  allowed_ = connections_within(limit.rlim_cur, open_);
  log(LogLevel::kInfo, "{} connections: the soft limit of descriptors (ulimit -n) is raised from {} to {}", connections,
      before, limit.rlim_cur);
  return true;
}

}  // namespace farside
