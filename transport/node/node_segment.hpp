// SPDX-License-Identifier: BSD-3-Clause
// The memory of one space on this node, and the huge pages in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/node/node_group.hpp"
#include "transport/node/segment.hpp"

namespace farside {

// HugePages: the transparent huge pages of large data in segments (FARSIDE_HUGE_PAGES=transparent). Random accesses to
// much memory then miss the processor's cache of translations (TLB) less often. Data of kFewest huge pages or more
// begin one in the file and at their address, so that one entry of the page table covers it, and madvise(2) asks for
// huge pages. The kernel still allocates each page at its first use, on the NUMA node of its user, and takes small ones
// where it has no huge one.
//
// The kernel gives huge pages to shared memory only if its administrator allows that (/sys/kernel/mm/
// transparent_hugepage/shmem_enabled, see Documentation/admin-guide/mm/transhuge.rst). Where that is allowed later, the
// kernel's thread khugepaged makes huge pages of advised memory that is already in use.
//
// Thread safety: any. No errors. Cost: one madvise(2), of any number of bytes.
class HugePages {
 public:
  // With fewer pages, the share of wasted memory would be larger, because the last huge page is allocated as a whole.
  static constexpr std::uint64_t kFewest = 8;

  // None.
  HugePages() = default;
  // `page`: the size of a huge page, a power of two; 0: none.
  explicit HugePages(std::size_t page) : page_(page) {}
  // Those of this machine; none if its kernel has none.
  static HugePages of_kernel();
  std::size_t page() const { return page_; }
  // Returns whether data of this size have huge pages.
  bool suitable_for(std::uint64_t bytes) const { return page_ != 0 && bytes / page_ >= kFewest; }
  // Returns `bytes` of data in whole pages of their kind. Precondition: bytes is at most SIZE_MAX / 2.
  std::uint64_t whole(std::uint64_t bytes) const { return round_up(bytes, bytes); }
  // Returns the next place at which data of this size may begin. Precondition: `place` is at most SIZE_MAX / 2.
  std::uint64_t round_up(std::uint64_t place, std::uint64_t bytes) const {
    const std::uint64_t unit = suitable_for(bytes) ? page_ : small_page();
    return (place + unit - 1) / unit * unit;
  }
  // Warns, once per process, if the kernel gives no huge pages to segments.
  static void warn_if_refused();

  // Returns why the kernel gives no huge pages to shared memory that asks for them; an empty string if it does.
  static constexpr const char* kFolder = "/sys/kernel/mm/transparent_hugepage";
  static std::string why_not(const std::string& folder = kFolder);

 private:
  static std::uint64_t small_page();

  std::size_t page_ = 0;
};

// NodeSegment: the memory of one space on this node, in one segment that all members of the node map as a whole. A
// process therefore has one mapping per space, however many on-node peers it has.
//
//   | control blocks, of equal size, by index | data by index; each begins a page, or all are contiguous |
//
// Large data begin a huge page, and get huge pages, if the leader wants them (HugePages).
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
    HugePages huge;           // of large data, if this member leads
    bool overcommit = false;  // the data may be larger than the free memory
  };
  // The leader's message to the others. Plain bytes.
  struct Announcement {
    SegmentPlace place;
    std::uint64_t failed = 0;     // 0, or 1 + ErrorKind
    std::uint64_t huge_page = 0;  // HugePages::page()
  };
  NodeSegment() = default;
  // `layout` is equal on all members. Errors: kNoMemory, kNoRoute. An error is in the announcement, too.
  static Result<NodeSegment> lead(const NodeGroup& group, const Layout& layout, Announcement& announcement);
  static Result<NodeSegment> join(const NodeGroup& group, const Layout& layout, const Announcement& announcement);

  std::byte* control(int index) const {
    return segment_.mapping.base() + static_cast<std::size_t>(index) * control_bytes_;
  }
  std::byte* data(int index) const { return segment_.mapping.base() + data_at_[static_cast<std::size_t>(index)]; }
  // Frees the memory of data(), which must not be called any more.
  void forget_places() { data_at_ = {}; }
  // To be called when all members have mapped the segment (Segment::published).
  void published() {
    if (has_descriptor()) segment_.published();
  }
  bool has_descriptor() const { return segment_.fd.valid(); }

 private:
  // Where the memory lies.
  struct Plan {
    std::uint64_t bytes = 0;    // of the segment
    std::size_t alignment = 0;  // of its address; 0: any
    std::vector<Reserve> huge;  // the parts with huge pages
  };
  Result<Plan> arrange(const NodeGroup& group, const Layout& layout, HugePages huge);
  void advise(const Plan& plan);

  std::size_t control_bytes_ = 0;
  std::vector<std::uint64_t> data_at_;
  Segment segment_;  // other members than the leader have the mapping of it
};

}  // namespace farside
