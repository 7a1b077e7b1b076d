// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <linux/mempolicy.h>
#include <map>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
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

namespace {

// Returns whether a new segment is large, if it is within all limits.
Result<bool> check_limits(std::size_t bytes, std::size_t own) {
  rlimit limit{};
  // Beyond RLIMIT_FSIZE ftruncate(2) raises SIGXFSZ; RLIMIT_AS makes mmap fail by itself.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("shared memory of {} bytes is more than the file size limit of this process ({} bytes); "
                             "raise it with ulimit -f",
                             bytes, static_cast<std::uint64_t>(limit.rlim_cur))};
  }
  const MemoryNeed need = find_memory_need(own);
  if (Status enough = check_memory_need(need); !enough) return enough.error();
  // All segments together have at most the available memory, so on average a node keeps at most kMostKept descriptors.
  constexpr std::uint64_t kMostKept = 64;
  return std::ranges::any_of(
      need.limits, [&](const MemoryNeed::Limit& each) { return each.id != 0 && bytes >= each.left / kMostKept; });
}

// Sets errno if it fails. Before Linux 6.11 a signal makes fallocate(2) on a memfd undo its work, so with a profiler's
// timer a large call would never end.
bool allocate_pages(int fd, const Reserve& part) {
  const SignalsBlocked blocked;
  return part.bytes == 0 || fallocate(fd, 0, static_cast<off_t>(part.offset), static_cast<off_t>(part.bytes)) == 0;
}

Error failed(const char* call, std::size_t bytes) {
  return Error{ErrorKind::kNoMemory,
               fmt::format("shared memory of {} bytes: {}: {}", bytes, call, std::strerror(errno))};
}

// Like mmap(2) of a file. Where an alignment beyond pages is wanted, the kernel chooses a place for more bytes, and the
// mapping takes the aligned part of it.
void* map_file(int fd, std::uint64_t offset, std::size_t bytes, std::size_t alignment) {
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  const auto from = static_cast<off_t>(offset);
  if (alignment <= static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))
    return mmap(nullptr, bytes, kAccess, MAP_SHARED, fd, from);
  constexpr int kRoom = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const room = mmap(nullptr, bytes + alignment, PROT_NONE, kRoom, -1, 0);
  if (room == MAP_FAILED) return MAP_FAILED;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(room) % alignment;
  std::byte* const place = static_cast<std::byte*>(room) + before;
  if (before != 0) munmap(room, before);
  munmap(place + bytes, alignment - before);
  void* const base = mmap(place, bytes, kAccess, MAP_SHARED | MAP_FIXED, fd, from);
  if (base == MAP_FAILED) munmap(place, bytes);
  return base;
}

}  // namespace

Status place_on_nodes(std::byte* base, std::size_t bytes, Numa numa) {
  constexpr unsigned kNodes = 1024, kBits = 64;  // the most nodes of Linux; the calls want one bit more
  std::array<unsigned long, kNodes / kBits> nodes{};
  if (numa == Numa::kFirstTouch || bytes == 0) return {};
  long code = 0;
  if (unsigned cpu = 0, node = 0; numa == Numa::kBind) {
    code = getcpu(&cpu, &node);
    nodes[node / kBits] = 1UL << node % kBits;
  } else {
    code = syscall(SYS_get_mempolicy, nullptr, nodes.data(), kNodes + 1UL, nullptr, MPOL_F_MEMS_ALLOWED);
  }
  const auto mode = numa == Numa::kBind ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(base) % static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (code == 0) code = syscall(SYS_mbind, base - before, bytes + before, mode, nodes.data(), kNodes + 1UL, 0UL);
  if (code == 0) return {};
  return Error{ErrorKind::kOther,
               fmt::format("placing pages on NUMA nodes (mbind) is refused: {}", std::strerror(errno))};
}

Result<Segment> make_segment(std::size_t bytes, const Reserve& reserve, std::size_t own, std::size_t alignment) {
  const Result<bool> large = check_limits(bytes, own);
  if (!large) return large.error();
  UniqueFd file(memfd_create("farside", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return failed("memfd_create", bytes);
  // Only processes of this user may open it through /proc.
  if (fchmod(file.get(), 0600) != 0) return failed("fchmod", bytes);
  if (!allocate_pages(file.get(), reserve)) return failed("fallocate", bytes);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate", bytes);
  void* const base = map_file(file.get(), 0, bytes, alignment);
  if (base == MAP_FAILED) return failed("mmap", bytes);
  Mapping mapping(base, bytes);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("sealing", bytes);
  return Segment{std::move(mapping), std::move(file), large.value(), nullptr};
}

void Segment::published() {
  if (large)
    reserve = std::make_unique<UntouchedMemory>(fd.get(), mapping.bytes());
  else
    fd.reset();
}

Result<Mapping> map_peer_segment(pid_t pid, int fd, std::size_t bytes, std::uint64_t offset, const Reserve& reserve,
                                 std::size_t alignment) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const auto failed_on = [&](const char* call) {
    const int code = errno;
    const bool exhausted = code == ENOMEM || code == EMFILE || code == ENFILE || code == EAGAIN;
    return Error{exhausted ? ErrorKind::kNoMemory : ErrorKind::kNoRoute,
                 fmt::format("{} {}: {}{}", call, path, std::strerror(code),
                             code == EACCES ? " (has the process become not dumpable, prctl(2)?)" : "")};
  };
  // With another pid namespace the path may lead to any file, hence O_NONBLOCK and the checks below.
  const UniqueFd peer(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!peer.valid()) return failed_on("open");
  struct stat info {};
  if (fstat(peer.get(), &info) != 0) return failed_on("fstat");
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) < offset + bytes) {
    return Error{ErrorKind::kNoRoute, fmt::format("{} is not the peer's segment", path)};
  }
  if (!allocate_pages(peer.get(), reserve)) return failed("fallocate", reserve.bytes);
  void* base = map_file(peer.get(), offset, bytes, alignment);
  if (base == MAP_FAILED) return failed_on("mmap");
  return Mapping(base, bytes);
}

Result<Mapping> map_peer_segment(const SegmentPlace& place, std::size_t bytes, const Reserve& reserve,
                                 std::size_t alignment) {
  Result<Mapping> mapped = map_peer_segment(place.pid, place.fd, bytes, 0, reserve, alignment);
  if (mapped && std::memcmp(mapped.value().base(), &place.nonce, sizeof place.nonce) != 0)
    return Error{ErrorKind::kNoRoute, fmt::format("process id {} is that of another process here", place.pid)};
  return mapped;
}

}  // namespace farside
