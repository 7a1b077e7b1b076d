// SPDX-License-Identifier: BSD-3-Clause
// The memory that is available for segments, and the check that it suffices for all processes of a node together. The
// kernel allocates the pages of a memfd at their first use, and kills a process rather than refuse a page. So a process
// reads the limits before it makes a segment: the memory of the node (MemAvailable and, where vm.overcommit_memory is
// 2, what may still be committed), and the limits of its control group and of the groups above it (versions 1 and 2).
// The need of a process is the size of its part of the new segment and the untouched part of its earlier ones. The
// processes of a node exchange their needs, and each adds up the needs of all that share one of its limits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "transport/base/result.hpp"

namespace farside {

struct AvailableMemory {
  std::uint64_t bytes;
  const char* limit;  // the lowest limit: "the memory of this node" or "the control group of this process"
};
// Reads /proc and /sys/fs/cgroup, which takes some 50 us.
AvailableMemory available_shared_memory();
// Whether this process may map its pages anew at their addresses: no page is locked, none is pinned by a device (which
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

}  // namespace farside
