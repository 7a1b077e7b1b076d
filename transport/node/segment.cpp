// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/base/threads.hpp"

namespace farside {
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

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
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
