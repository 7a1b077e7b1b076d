// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/memory_limits.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/threads.hpp"

namespace farside {
namespace {

// At most this many bytes are not checked: the check would cost more than it is worth.
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
// A limit of this size means "unlimited" in version 1.
constexpr std::uint64_t kLargest = std::uint64_t{1} << 62;

// The ids of limits: that of the node, and a bit of those of groups.
constexpr std::uint64_t kNodeId = 1, kGroupId = 2;

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // absent, or "max"
}

// A file of lines with a name and a number: "MemAvailable:   24000 kB", "inactive_file 4096".
class Table {
 public:
  explicit Table(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::size_t end = line.find_first_of(": ");
      if (end == std::string::npos) continue;
      numbers_[line.substr(0, end)] = std::strtoull(line.c_str() + end + 1, nullptr, 10);
    }
  }
  std::optional<std::uint64_t> find(const char* name) const {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, std::uint64_t> numbers_;
};

std::uint64_t difference(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

bool commits_strictly() { return read_number("/proc/sys/vm/overcommit_memory") == std::uint64_t{2}; }

// Returns the available memory of the node in bytes (proc(5)).
std::uint64_t left_on_node() {
  const Table table("/proc/meminfo");
  const auto available = table.find("MemAvailable");
  std::uint64_t left = available ? *available * 1024 : kUnlimited;
  const auto most = table.find("CommitLimit"), committed = table.find("Committed_AS");
  if (most && committed && commits_strictly()) {
    left = std::min(left, difference(*most, *committed) * 1024);
  }
  return left;
}

struct Version {
  const char* root;
  const char* limit;
  const char* used;
  const char* inactive;  // in memory.stat; includes the groups below
  const char* active;
};
constexpr Version kVersion1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                            "total_inactive_file", "total_active_file"};
constexpr Version kVersion2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file", "active_file"};

// Returns the bytes that a group may still allocate; nothing if it has no limit. The used bytes include pages of files
// that were read, but the kernel drops those when it needs pages.
std::optional<std::uint64_t> left_in_group(const Version& version, const std::string& group) {
  const auto limit = read_number(group + version.limit);
  if (!limit || *limit >= kLargest) return std::nullopt;
  const auto used = read_number(group + version.used);
  if (!used) return std::nullopt;
  const Table table(group + "/memory.stat");
  return difference(
      *limit, difference(*used, table.find(version.inactive).value_or(0) + table.find(version.active).value_or(0)));
}

// Returns the limits of the node, of this process's control group, and of the groups above it.
std::vector<MemoryNeed::Limit> find_limits() {
  std::vector<MemoryNeed::Limit> found{{kNodeId, left_on_node()}};
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool second_version = controllers == ",,";
    if (!second_version && controllers.find(",memory,") == std::string::npos) continue;
    const Version& version = second_version ? kVersion2 : kVersion1;
    const std::size_t root = std::string(version.root).size();
    std::string group = version.root + line.substr(second + 1);
    // In a container the path may be the path outside of the container.
    struct stat info {};
    if (stat(group.c_str(), &info) != 0) group = version.root;
    if (group.ends_with('/')) group.pop_back();
    for (;; group.erase(std::max(group.rfind('/'), root))) {
      const auto left = left_in_group(version, group);
      if (left && stat(group.c_str(), &info) == 0)
        found.push_back({mixed(info.st_ino ^ mixed(info.st_dev)) | kGroupId, *left});
      if (group.size() <= root) break;
    }
  }
  return found;
}

constinit std::mutex untouched_mutex;
constinit UntouchedMemory* untouched = nullptr;

}  // namespace

AvailableMemory available_shared_memory() {
  const std::vector<MemoryNeed::Limit> limits = find_limits();
  const MemoryNeed::Limit& least = *std::ranges::min_element(limits, {}, &MemoryNeed::Limit::left);
  return {least.left, least.id == kNodeId ? "the memory of this node" : "the control group of this process"};
}

bool may_remap_pages() {
  const Table status("/proc/self/status");
  return status.find("VmLck") == std::uint64_t{0} && status.find("VmPin") == std::uint64_t{0} && !commits_strictly();
}

MemoryNeed find_memory_need(std::uint64_t bytes) {
  MemoryNeed need;
  if (bytes <= kSmall) return need;
  need.bytes = bytes + std::min(UntouchedMemory::unused(), kUnlimited - bytes);
  const std::vector<MemoryNeed::Limit> limits = find_limits();
  std::copy_n(limits.begin(), std::min(limits.size(), need.limits.size()), need.limits.begin());
  return need;
}

MemoryNeed::LimitIds MemoryNeed::ids() const {
  LimitIds ids{};
  std::ranges::transform(limits, ids.begin(), &Limit::id);
  return ids;
}

MemoryNeed::LimitIds memory_limit_ids() { return find_memory_need(kSmall + 1).ids(); }

Status check_memory_needs(const MemoryNeed& own, std::span<const MemoryShare> all) {
  for (const MemoryNeed::Limit& limit : own.limits) {
    if (limit.id == 0) continue;
    std::uint64_t sum = 0;
    std::size_t processes = 0;
    for (const MemoryShare& share : all) {
      if (std::ranges::find(share.limits, limit.id) == share.limits.end()) continue;
      sum += std::min(share.bytes, kUnlimited - sum);
      ++processes;
    }
    if (sum <= limit.left) continue;
    return Error{ErrorKind::kNoMemory,
                 fmt::format("shared memory of {} bytes{} is more than {} left ({} bytes); for windows that are "
                             "touched in part FARSIDE_OVERCOMMIT=on or the info key farside_overcommit=true allows it",
                             sum, processes > 1 ? fmt::format(" for {} processes", processes) : "",
                             limit.id == own.limits[0].id ? "this node has" : "their control group has", limit.left)};
  }
  return {};
}

Status check_memory_need(const MemoryNeed& own) {
  const MemoryShare share{own.bytes, own.ids()};
  return check_memory_needs(own, std::span(&share, 1));
}

UntouchedMemory::UntouchedMemory(int fd, std::uint64_t bytes) : fd_(fd), bytes_(bytes) {
  const HeldWithoutSignals held(untouched_mutex);
  next_ = untouched;
  untouched = this;
}

UntouchedMemory::~UntouchedMemory() {
  const HeldWithoutSignals held(untouched_mutex);
  UntouchedMemory** link = &untouched;
  while (*link != nullptr && *link != this) link = &(*link)->next_;
  if (*link == this) *link = next_;
}

void UntouchedMemory::change_to(std::uint64_t bytes) {
  const HeldWithoutSignals held(untouched_mutex);
  bytes_ = bytes;
}

std::mutex& UntouchedMemory::mutex() { return untouched_mutex; }

std::uint64_t UntouchedMemory::unused() {
  const HeldWithoutSignals held(untouched_mutex);
  std::uint64_t sum = 0;
  for (const UntouchedMemory* each = untouched; each != nullptr; each = each->next_) {
    struct stat info {};
    if (fstat(each->fd_, &info) == 0) sum += difference(each->bytes_, static_cast<std::uint64_t>(info.st_blocks) * 512);
  }
  return sum;
}

}  // namespace farside
