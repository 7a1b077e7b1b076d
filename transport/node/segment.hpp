// SPDX-License-Identifier: BSD-3-Clause
// Memory that other processes of the node can map: an unnamed memfd, so that no name can leak and no limit of /dev/shm
// applies. Peers open it through /proc/PID/fd/N while a window is created; then the owner closes it. A process reserves
// the pages that farside itself needs. The kernel allocates the other pages, as zeroes, when and where the application
// first touches them. A check beforehand makes a shortage an error (memory_limits.hpp).
//
// Thread safety: any for different objects. Errors: kNoMemory for own memory, kNoRoute for a peer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

#include "transport/base/files.hpp"
#include "transport/base/result.hpp"
#include "transport/node/memory_limits.hpp"

namespace farside {

// A mapping; the destructor unmaps it.
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
  void release() { base_ = nullptr; }  // the memory stays mapped

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
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
