// SPDX-License-Identifier: BSD-3-Clause
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
// Thread safety: any. No errors. Cost: advise() is one system call, of any number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace farside {

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
  // Asks the kernel for huge pages in a mapping. The address and the size are multiples of the page.
  static void advise(std::byte* base, std::size_t bytes);

  // Returns why the kernel gives no huge pages to shared memory that asks for them; an empty string if it does.
  // `folder`: /sys/kernel/mm/transparent_hugepage.
  static std::string why_not(const std::string& folder);

 private:
  static std::uint64_t small_page();

  std::size_t page_ = 0;
};

}  // namespace farside
