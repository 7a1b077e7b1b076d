// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace farside {
namespace {

// To look for what there is costs some 50 us, which small pieces are not worth.
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// MemAvailable of /proc/meminfo (proc(5)), in bytes.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  return kUnlimited;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // absent, or "max"
}

// What this process's control group (version 2) may still take, in bytes.
std::uint64_t available_in_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string group = "/sys/fs/cgroup" + line.substr(3);
    const auto limit = read_number(group + "/memory.max");
    const auto used = read_number(group + "/memory.current");
    if (limit && used) return *limit > *used ? *limit - *used : 0;
  }
  return kUnlimited;
}

// The kernel would rather kill a process than refuse pages of a memfd, so look before reserving.
Status check_limits(std::uint64_t offset, std::size_t bytes) {
  rlimit limit{};
  // Beyond RLIMIT_FSIZE ftruncate(2) raises SIGXFSZ; RLIMIT_AS makes mmap fail by itself.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      (bytes > limit.rlim_cur || offset > limit.rlim_cur - bytes)) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("shared memory of {} bytes is more than the file size limit of this process ({} bytes); "
                             "raise it with ulimit -f", bytes, static_cast<std::uint64_t>(limit.rlim_cur))};
  }
  if (bytes <= kSmall) return {};
  const std::uint64_t available = available_shared_memory().bytes;
  if (bytes > available) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("shared memory of {} bytes is more than this node has left ({} bytes)", bytes, available)};
  }
  return {};
}

// Before Linux 6.11 a signal makes fallocate(2) on a memfd undo everything: a profiler's timer would keep it from ever
// ending. So no signals meanwhile, for a piece at a time.
int reserve(int fd, std::uint64_t offset, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{256} << 20;
  sigset_t all, before;
  sigfillset(&all);
  for (std::size_t done = 0; done < bytes; done += std::min(bytes - done, kPiece)) {
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const std::size_t piece = std::min(bytes - done, kPiece);
    const int code = fallocate(fd, 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) == 0 ? 0 : errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (code != 0) return code;
  }
  return 0;
}

Error failed(const char* call) {
  return Error{ErrorKind::kNoMemory, fmt::format("shared memory: {}: {}", call, std::strerror(errno))};
}

Error failed(const char* call, std::size_t bytes) {
  return Error{ErrorKind::kNoMemory, fmt::format("shared memory of {} bytes: {}: {}", bytes, call, std::strerror(errno))};
}

}  // namespace

AvailableMemory available_shared_memory() {
  const AvailableMemory node{available_memory(), "the memory of this node"};
  const AvailableMemory group{available_in_cgroup(), "the control group of this process"};
  return group.bytes < node.bytes ? group : node;
}

bool enough_memory_for(std::uint64_t bytes) { return bytes <= kSmall || bytes <= available_shared_memory().bytes; }

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

Result<UniqueFd> make_memory_file() {
  UniqueFd fd(memfd_create("farside", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return failed("memfd_create");
  // Only this user's processes may open it through /proc.
  if (fchmod(fd.get(), 0600) != 0) return failed("fchmod");
  return fd;
}

Result<Mapping> extend_memory_file(int fd, std::uint64_t offset, std::size_t bytes) {
  if (Status status = check_limits(offset, bytes); !status) return status.error();
  // Reserving also touches the pages from the owner's process: they are zeroed on its NUMA node.
  if (const int code = reserve(fd, offset, bytes); code != 0) {
    errno = code;
    return failed("fallocate", bytes);
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (base == MAP_FAILED) return failed("mmap", bytes);
  return Mapping(base, bytes);
}

Result<Segment> make_segment(std::size_t bytes) {
  Result<UniqueFd> file = make_memory_file();
  if (!file) return file.error();
  Result<Mapping> mapping = extend_memory_file(file.value().get(), 0, bytes);
  if (!mapping) return mapping.error();
  if (fcntl(file.value().get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("sealing", bytes);
  return Segment{std::move(mapping.value()), std::move(file.value())};
}

Result<Mapping> map_peer_segment(pid_t pid, int fd, std::size_t bytes, std::uint64_t offset) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const auto failed_on = [&](const char* call) {
    return Error{ErrorKind::kNoRoute, fmt::format("{} {}: {}", call, path, std::strerror(errno))};
  };
  // O_NONBLOCK and the checks behind: the path may lead to something else in another pid namespace.
  const UniqueFd peer(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!peer.valid()) return failed_on("open");
  struct stat info {};
  if (fstat(peer.get(), &info) != 0) return failed_on("fstat");
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) < offset + bytes) {
    return Error{ErrorKind::kNoRoute, fmt::format("{} is not the peer's segment", path)};
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer.get(), static_cast<off_t>(offset));
  if (base == MAP_FAILED) return failed_on("mmap");
  return Mapping(base, bytes);
}

}  // namespace farside
