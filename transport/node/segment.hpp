// SPDX-License-Identifier: BSD-3-Clause
// Memory that other processes of the node can map: an unnamed memfd, so that no name can leak and no limit of /dev/shm
// applies. Peers open it through /proc/PID/fd/N while a window is created; then the owner closes it. A process reserves
// the pages that farside itself needs. The kernel allocates the other pages, as zeroes, when and where the application
// first touches them. A check beforehand makes a shortage an error.
//
// Thread safety: any for different objects. Errors: kNoMemory for own memory, kNoRoute for a peer's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <sys/mman.h>
#include <sys/types.h>

#include "transport/base/files.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"

namespace farside {

// The memory that is available for segments, and the check that it suffices for all processes of a node together. The
// kernel allocates the pages of a memfd at their first use, and kills a process rather than refuse a page. So a process
// reads the limits before it makes a segment: the memory of the node (MemAvailable and, where vm.overcommit_memory is
// 2, what may still be committed), and the limits of its control group and of the groups above it (versions 1 and 2).
// The need of a process is the size of its part of the new segment and the untouched part of its earlier ones. The
// processes of a node exchange their needs, and each adds up the needs of all that share one of its limits.

struct AvailableMemory {
  std::uint64_t bytes;
  const char* limit;  // the lowest limit: "the memory of this node" or "the control group of this process"
};
// Reads /proc and /sys/fs/cgroup, which takes some 50 us.
AvailableMemory available_shared_memory();
// Whether this process may map its pages again at their addresses: no page is locked, none is pinned by a device (which
// would go on to use the old pages), and the mapping cannot fail for want of a commitment (vm.overcommit_memory is 2).
bool may_remap_pages();

// The need and the limits of one process.
struct MemoryNeed {
  struct Limit {
    std::uint64_t id = 0;    // the same in all processes under the same limit; 0: no limit
    std::uint64_t left = 0;  // bytes
  };
  static constexpr std::size_t kLimits = 5;
  using LimitIds = std::array<std::uint64_t, kLimits>;
  std::uint64_t bytes = 0;            // of the new segment, and the untouched bytes of earlier ones
  std::array<Limit, kLimits> limits;  // of the node, then of control groups, the innermost first
  LimitIds ids() const;
};

// Returns the need of this process for `bytes` more; no need and no limits for at most 64 KiB. Thread safety: any.
MemoryNeed find_memory_need(std::uint64_t bytes);
// Returns the ids of the limits that apply to this process. Thread safety: any. Cost: some 50 us.
MemoryNeed::LimitIds memory_limit_ids();

// The need of a process of the node, and the limits that apply to it.
struct MemoryShare {
  std::uint64_t bytes = 0;
  MemoryNeed::LimitIds limits{};
};
// Checks that each limit of this process, which has the need `own`, has room for the needs of all processes under it.
// `all` has the shares of the whole node, this process's included. Errors: kNoMemory, with the limit that is exceeded.
Status check_memory_needs(const MemoryNeed& own, std::span<const MemoryShare> all);
// The same for this process alone.
Status check_memory_need(const MemoryNeed& own);

// A sparse file of this process. While the object lives, the untouched part of the file belongs to the process's need.
// Thread safety: any.
class UntouchedMemory {
 public:
  // The descriptor must stay open: fstat(2) on it says how much of the file has been touched.
  UntouchedMemory(int fd, std::uint64_t bytes);
  UntouchedMemory(const UntouchedMemory&) = delete;
  UntouchedMemory& operator=(const UntouchedMemory&) = delete;
  ~UntouchedMemory();
  void change_to(std::uint64_t bytes);

  // Guards all objects. A forking thread holds it, so that the child finds it free.
  static std::mutex& mutex();

 private:
  friend MemoryNeed find_memory_need(std::uint64_t bytes);
  static std::uint64_t unused();
  UntouchedMemory* next_ = nullptr;
  int fd_;
  std::uint64_t bytes_;
};

// A mapping; the destructor unmaps it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, std::size_t bytes) : held_(static_cast<std::byte*>(base), Unmap{bytes}) {}
  std::byte* base() const { return held_.get(); }
  std::size_t bytes() const { return held_.get_deleter().bytes; }
  void release() { (void)held_.release(); }  // the memory stays mapped

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* base) const { ::munmap(base, bytes); }
  };
  std::unique_ptr<std::byte, Unmap> held_;
};

// A segment of this process, zeroed and mapped. `fd` stays open until the peers have mapped the segment.
struct Segment {
  Mapping mapping;
  UniqueFd fd;
  bool large = false;                        // from 1/64 of the memory on that was available when it was made
  std::unique_ptr<UntouchedMemory> reserve;  // of a large segment, after published()

  // To be called when the peers have mapped the segment. Closes the descriptor of a small segment. A large one keeps
  // it, so that the need of later segments includes the untouched part of this one.
  void published();
};

// Says from which NUMA nodes the kernel takes the pages of a part of a segment that nobody has touched yet, its first
// and last page included (mbind(2)). The file keeps this, so it holds for all processes. kBind: from the node of the
// calling thread's processor, and from others when that one has no free page: with the kernel's MPOL_BIND a process
// would be killed. kInterleave: from all nodes that this process may use. Thread safety: any. Cost: two system calls; a
// mapping more in this process. Errors: kOther, as in containers that forbid the call; the memory can be used.
Status place_on_nodes(std::byte* base, std::size_t bytes, Numa numa);

// A part of a segment whose pages are allocated at once.
struct Reserve {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
};

// Makes a segment, of which this process needs `own` bytes for itself. Only the reserved part takes time. The address
// of the mapping is a multiple of the page size and of `alignment`, a power of two, or 0. With an `alignment` beyond
// the page size, `bytes` must be a multiple of the page size. Errors: kNoMemory, with the limit that is exceeded.
Result<Segment> make_segment(std::size_t bytes, const Reserve& reserve, std::size_t own, std::size_t alignment = 0);
inline Result<Segment> make_segment(std::size_t bytes) { return make_segment(bytes, {0, bytes}, bytes); }

// The location of a segment whose first word is a nonce. Plain bytes.
struct SegmentPlace {
  std::int32_t pid = 0;
  std::int32_t fd = -1;  // -1: there is none
  std::uint64_t nonce = 0;
};
// Maps `bytes` of this segment from its start on, and reserves a part of it. `alignment`: as above. Errors: kNoRoute,
// also if the nonce differs, because process ids differ between pid namespaces; kNoMemory if the part cannot be
// reserved.
Result<Mapping> map_peer_segment(const SegmentPlace& place, std::size_t bytes, const Reserve& reserve = {},
                                 std::size_t alignment = 0);

// Maps `bytes` of the segment that process `pid` of this node has open as `fd`, from `offset` on, a multiple of the
// page size. The caller knows that the process is the right one. Otherwise the same.
Result<Mapping> map_peer_segment(pid_t pid, int fd, std::size_t bytes, std::uint64_t offset = 0,
                                 const Reserve& reserve = {}, std::size_t alignment = 0);

}  // namespace farside
