// SPDX-License-Identifier: BSD-3-Clause
// Memory that other processes of the node can map: an unnamed memfd, opened by peers through /proc/PID/fd/N while
// windows are created and then closed, so that no name can leak and no /dev/shm limit can strike later. Its pages
// are reserved when it is made: a shortage is an error there, never a SIGBUS afterwards.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "transport/base/result.hpp"
#include "transport/base/unique_fd.hpp"

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

// A segment of this process: zeroed, reserved, mapped. `fd` stays open until the peers have mapped it.
struct Segment {
  Mapping mapping;
  UniqueFd fd;
};

// What there is for segments: bytes, and which limit that is ("the memory of this node", "the control group of this process").
struct AvailableMemory {
  std::uint64_t bytes;
  const char* limit;
};
AvailableMemory available_shared_memory();
// Whether so much is there; always true of what is too little to be worth the look, which costs some 50 us.
bool enough_memory_for(std::uint64_t bytes);

// Errors: kNoMemory, with the limit that was met.
Result<Segment> make_segment(std::size_t bytes);

// The same in pieces: a file of memory without any, and more of it, from `offset` on: a whole page, not before the end.
Result<UniqueFd> make_memory_file();
Result<Mapping> extend_memory_file(int fd, std::uint64_t offset, std::size_t bytes);

// Maps the segment that process `pid` of this node holds open as `fd`, or a part of it from a whole page on. The
// caller must make sure that it is the right one (a nonce inside): process ids mean nothing across pid namespaces.
Result<Mapping> map_peer_segment(pid_t pid, int fd, std::size_t bytes, std::uint64_t offset = 0);

}  // namespace farside
