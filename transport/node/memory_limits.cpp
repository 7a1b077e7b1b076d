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

#include "transport/base/threads.hpp"

namespace farside {
namespace {

// At most this many bytes are not checked: the check would cost more than it is worth.
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
// A limit of this size means "unlimited" in version 1.
constexpr std::uint64_t kLargest = std::uint64_t{1} << 62;

constexpr const char* kNode = "the memory of this node";
constexpr const char* kGroup = "the control group of this process";

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

// Returns an id of this boot of this machine, which all its processes share; 0 if the id cannot be read.
std::uint64_t kernel_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (file.peek() == std::ifstream::traits_type::eof()) return 0;
  std::uint64_t value = 0xcbf29ce484222325ULL;  // FNV-1a
  for (char c = 0; file.get(c);) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value | 1;
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

// Returns the limits of this process's control group and of the groups above it.
std::vector<MemoryNeed::Limit> limits_of_groups(std::uint64_t kernel) {
  std::vector<MemoryNeed::Limit> found;
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
        found.push_back({(kernel ^ info.st_ino * 0x9e3779b97f4a7c15ULL ^ info.st_dev) | 1, *left});
      if (group.size() <= root) break;
    }
  }
  return found;
}

constinit std::mutex untouched_mutex;
constinit UntouchedMemory* untouched = nullptr;

}  // namespace

AvailableMemory available_shared_memory() {
  AvailableMemory least{left_on_node(), kNode};
  for (const MemoryNeed::Limit& group : limits_of_groups(0)) {
    if (group.left < least.bytes) least = {group.left, kGroup};
  }
  return least;
}

bool may_remap_pages() {
  const Table status("/proc/self/status");
  return status.find("VmLck") == std::uint64_t{0} && status.find("VmPin") == std::uint64_t{0} && !commits_strictly();
}

bool enough_memory_for(std::uint64_t bytes) { return bytes <= kSmall || bytes <= available_shared_memory().bytes; }

MemoryNeed find_memory_need(std::uint64_t bytes) {
  MemoryNeed need;
  if (bytes <= kSmall) return need;
  need.bytes = bytes + std::min(UntouchedMemory::unused(), kUnlimited - bytes);
  const std::uint64_t kernel = kernel_id();
  if (kernel == 0) return need;  // without an id no process can compare limits with its peers
  need.limits[0] = {kernel, left_on_node()};
  const std::vector<MemoryNeed::Limit> groups = limits_of_groups(kernel);
  std::copy_n(groups.begin(), std::min(groups.size(), need.limits.size() - 1), need.limits.begin() + 1);
  return need;
}

MemoryNeed::LimitIds memory_limit_ids() {
  MemoryNeed::LimitIds ids{};
  const MemoryNeed need = find_memory_need(kSmall + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = need.limits[i].id;
  return ids;
}

Status check_memory_needs(const MemoryNeed& own, std::span<const MemoryShare> all) {
  for (std::size_t i = 0; i < own.limits.size(); ++i) {
    const MemoryNeed::Limit& limit = own.limits[i];
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
                             i == 0 ? "this node has" : "their control group has", limit.left)};
  }
  return {};
}

Status check_memory_need(const MemoryNeed& own) {
  MemoryShare share{own.bytes, {}};
  for (std::size_t i = 0; i < own.limits.size(); ++i) share.limits[i] = own.limits[i].id;
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

void UntouchedMemory::forget_all() { untouched = nullptr; }

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
