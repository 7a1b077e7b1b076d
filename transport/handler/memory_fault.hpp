// SPDX-License-Identifier: BSD-3-Clause
// MemoryFault: an access of a message handler to the application's memory that fails, because the memory has a hole or
// lies beyond the end of a file that was truncated. Such an access must not end the process, since it is a peer's.
//
// libfabric's tcp provider makes such accesses, too, for RDMA: they end the process, after a line with the address.
// (It drops the error of sendmsg(2) from such memory, and the peer that reads it would wait for ever.)
//
// The signal handlers for SIGSEGV and SIGBUS pass all other faults on to the handlers that were set before. Where the
// application sets others later, faults end the process.
//
// Thread safety: any. Cost of an object: some 5 ns.
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <sys/socket.h>
#include <utility>

#include "transport/base/state.hpp"

namespace farside {

class MemoryFault : NotCopied {
 public:
  // Sets the signal handlers, also again after earlier ones were restored.
  static void expect();
  // While an object of this class lives, faults of this thread that nothing catches are reported: it accesses the
  // application's memory for peers only.
  class Reported : NotCopied {
   public:
    Reported() : before_(std::exchange(this_thread.reports_faults, true)) {}
    ~Reported() { this_thread.reports_faults = before_; }

   private:
    const bool before_;
  };
  // Reports faults of sendmsg(2) in calls by a library. `inside`: an address in it. May be repeated.
  static void report_sends_of(const void* inside);
  // While the object lives, an access of this thread to the `bytes` bytes from `begin` on that fails returns to
  //   if (__builtin_setjmp(fault.here()) == 0) { accesses }
  // with another value than 0, without calling destructors. (setjmp(3) saves more registers.)
  MemoryFault(const std::byte* begin, std::uint64_t bytes)
      : begin_(begin), bytes_(bytes), outer_(std::exchange(this_thread.fault, this)) {}
  ~MemoryFault() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    this_thread.fault = outer_;
  }
  [[gnu::always_inline]] void** here() { return place_.data(); }
  // Returns the address of the access that failed, or null.
  const void* address() const { return address_; }

 private:
  static void report(const void* at);
  static ssize_t send(int socket, const msghdr* message, int flags);
  static void on_signal(int signal, siginfo_t* information, void* context);

  const std::byte* const begin_;
  const std::uint64_t bytes_;
  MemoryFault* const outer_;
  const void* volatile address_ = nullptr;
  std::array<void*, 5> place_;
};

}  // namespace farside
