// SPDX-License-Identifier: BSD-3-Clause
// Memory that other processes of the node can map: an unnamed memfd, opened by peers through /proc/PID/fd/N while
// windows are created and then closed, so that no name can leak and no /dev/shm limit can strike later. What farside
// itself needs of it is reserved when it is made. The rest comes page by page, where and when the application first
// touches it, as zeroes; that it will fit is looked at before (memory_limits.hpp), and a shortage is an error.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/result.hpp"
#include "transport/base/unique_fd.hpp"
#include "transport/node/memory_limits.hpp"

namespace farside {

// A mapping, unmapped with its owner.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, std::size_t bytes) : base_(static_cast<std::byte*>(base)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// A segment of this process: zeroed, mapped. `fd` stays open until the peers have mapped it.
struct Segment {
  Mapping mapping;
  UniqueFd fd;
  MemoryNeed need;                          // what was found when it was made, for the peers
  std::unique_ptr<UntouchedMemory> reserve;  // once the peers have mapped it

  // The peers have mapped it: the descriptor is closed. That of a large segment stays, so that later ones see how much
  // of it has not been touched yet: one of at least 1/64 of the share that each of `processes` has in the memory that
  // is left.
  void published(std::size_t processes);
};

// `reserved`: so many bytes at the beginning have their pages at once; takes time in proportion to these alone. Errors:
// kNoMemory, with the limit that was met.
Result<Segment> make_segment(std::size_t bytes, std::size_t reserved);
inline Result<Segment> make_segment(std::size_t bytes) { return make_segment(bytes, bytes); }

// The same in pieces: a file of memory without any, and more of it, from `offset` on: a whole page, not before the end.
// Nothing is reserved.
Result<UniqueFd> make_memory_file();
Result<Mapping> extend_memory_file(int fd, std::uint64_t offset, std::size_t bytes);

// Maps the segment that process `pid` of this node holds open as `fd`, or a part of it from a whole page on. The
// caller must make sure that it is the right one (a nonce inside): process ids mean nothing across pid namespaces.
Result<Mapping> map_peer_segment(pid_t pid, int fd, std::size_t bytes, std::uint64_t offset = 0);

}  // namespace farside
