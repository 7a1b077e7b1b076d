// SPDX-License-Identifier: BSD-3-Clause
// Sees the program's loads and stores of watched bytes of its private memory, without recompilation or debug registers:
// the pages are moved away (userfaultfd(2), UFFDIO_MOVE, since Linux 6.8), so the next access faults, also one by the
// kernel for a system call, which is not reported. A thread brings the page back. If other bytes were meant, only the
// faulting instruction is executed (x86-64: trap flag), and the page is moved away again.
//
//   SIGTRAP    is farside's from the first object on; if the program has a handler, no page is moved away again
//   fork(2)    brings all pages back before
//   memory     that is shared, pinned or unmapped is not watched, nor are more than kPages pages at once
//
// For debugging, and slow: each access to other bytes of such a page takes some 0.1 ms, on a busy machine milliseconds.
// After kSteps of them the bytes are no longer watched. While all have taken more than 0.5 s and 1/16 of the watch's
// life, no bytes are, which is reported once. Thread safety: arm(), disarm() and take() by one thread at a time. No
// remote operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace farside {

class PageWatch {
 public:
  static constexpr std::size_t kPages = 4;
  static constexpr std::size_t kRanges = 16;
  static constexpr int kSteps = 500;
  struct Range {
    std::uint64_t first, last;  // addresses
  };
  struct Hit {
    std::uint64_t address, instruction;
    bool store;
  };

  // Why this process cannot watch memory, and the remedy; empty if it can.
  static std::string why_not();

  // Starts the thread; at most one object of a process. Watches nothing if why_not(), or if memory is short. `runtime`:
  // a function of a library. Calls of that library and of this one end the watch of pages that they access.
  explicit PageWatch(const void* runtime);
  PageWatch(const PageWatch&) = delete;
  PageWatch& operator=(const PageWatch&) = delete;
  // Watches these bytes, the first kRanges and kPages of them, for the first access of each page. Precondition: no
  // bytes are watched.
  void arm(std::span<const Range> ranges);
  // Ends that.
  void disarm();
  // The accesses to watched bytes since the last call; valid until arm(). Precondition: no bytes are watched.
  std::span<const Hit> take();

 private:
  struct State;
  State* state_ = nullptr;  // in its own pages, since the thread may not touch a page that is away; never freed
};

}  // namespace farside
