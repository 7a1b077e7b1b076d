// SPDX-License-Identifier: BSD-3-Clause
// NodeSegment: the memory of one space on this node, in one segment that all members of the node map as a whole. A
// process therefore has one mapping per space, however many on-node peers it has.
//
//   | control blocks, of equal size, by index | data by index; each begins a page, or all are contiguous |
//
// Large data begin a huge page, and get huge pages, if the leader wants them (huge_pages.hpp).
//
// A control block consists of whole pages. Each member reserves the first `reserved` bytes of its own control block, so
// that their pages lie on its NUMA node and a shortage is an error.
//
// The leader makes the segment, and tells the others by an announcement (NodeGroup::exchange_by_leader),
// with which they join.
//
// Thread safety: none. Errors: kNoMemory if memory is short. If the leader fails, the others get an error of the same
// kind; the failure of another member is its own until the ranks agree (space/make_space.hpp). Cost: one mapping per
// member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/huge_pages.hpp"
#include "transport/node/node_group.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class NodeSegment {
 public:
  struct Layout {
    std::size_t control_bytes = 0;    // of one control block: whole pages
    std::size_t reserved = 0;         // of each control block, from its start
    std::vector<std::uint64_t> data;  // bytes of data of each member
    bool contiguous = false;          // no gaps between the data
    // Data begin at multiples of it, a power of two, in every process: those of each member or, if they are contiguous,
    // the first ones. Pages (and huge pages) are aligned anyway.
    std::uint64_t alignment = 1;
    HugePages huge;                   // of large data, if this member leads
    bool overcommit = false;          // the data may be larger than the free memory
  };
  // What the leader tells the others. Plain bytes.
  struct Announcement {
    std::int32_t fd = -1;
    std::int32_t failed = 0;      // 0, or 1 + ErrorKind
    std::uint64_t nonce = 0;      // the first word of the segment
    std::uint64_t huge_page = 0;  // HugePages::page()
  };
  NodeSegment() = default;
  // `layout` is equal on all members. Errors: kNoMemory, kNoRoute. An error is in the announcement, too.
  static Result<NodeSegment> lead(const NodeGroup& group, const Layout& layout, Announcement& announcement);
  static Result<NodeSegment> join(const NodeGroup& group, const Layout& layout, const Announcement& announcement);

  std::byte* control(int index) const { return mapping_.base() + static_cast<std::size_t>(index) * control_bytes_; }
  std::byte* data(int index) const { return mapping_.base() + data_at_[static_cast<std::size_t>(index)]; }
  // Frees the memory of data(), which must not be called any more.
  void forget_places() { data_at_ = {}; }
  // To be called when all members have mapped the segment (Segment::published).
  void published(std::size_t processes);
  bool has_descriptor() const { return made_ != nullptr && made_->fd.valid(); }

 private:
  // Where the memory lies.
  struct Plan {
    std::uint64_t bytes = 0;    // of the segment
    std::uint64_t gaps = 0;     // bytes that only the alignment of the data takes, and nobody uses
    std::size_t alignment = 0;  // of its address; 0: any
    std::vector<Reserve> huge;  // the parts with huge pages
  };
  Result<Plan> arrange(const NodeGroup& group, const Layout& layout, HugePages huge);
  void take(Mapping mapping, const Plan& plan);

  std::size_t control_bytes_ = 0;
  std::uint64_t gaps_ = 0;
  std::vector<std::uint64_t> data_at_;
  Mapping mapping_;
  std::unique_ptr<Segment> made_;  // of the leader, without its mapping
};

}  // namespace farside
