// SPDX-License-Identifier: BSD-3-Clause
// MemoryFault: an access of a message handler to the application's memory that fails, because the memory has a hole or
// lies beyond the end of a file that was truncated. Such an access must not end the process, since it is a peer's.
//
// libfabric's tcp provider makes such accesses, too, for RDMA: they end the process, after a line with the address.
//
// The signal handlers for SIGSEGV and SIGBUS pass all other faults on to the handlers that were set before. Where the
// application sets others later, faults end the process.
//
// Thread safety: any. Cost of catch_in(): some 10 ns.
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace farside {

class MemoryFault {
 public:
  // Sets the signal handlers, also again after earlier ones were restored.
  static void expect();
  // In this thread faults that nothing catches are reported: it accesses the application's memory for peers only.
  static void report_here() { reports_ = true; }
  // Calls work(), which accesses `bytes` bytes from `begin` on. If an access to them fails, abandons work() without
  // calling destructors, and returns the address; otherwise null.
  template <class Work>
  [[gnu::noinline]] static const void* catch_in(const std::byte* begin, std::uint64_t bytes, Work&& work) {
    MemoryFault fault(begin, bytes);
    if (sigsetjmp(fault.resume_, 0) == 0) {
      here_ = &fault;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      work();
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    here_ = nullptr;
    return fault.address_;
  }

 private:
  MemoryFault(const std::byte* begin, std::uint64_t bytes) : begin_(begin), bytes_(bytes) {}
  static void on_signal(int signal, siginfo_t* information, void* context);

  const std::byte* const begin_;
  const std::uint64_t bytes_;
  const void* volatile address_ = nullptr;
  sigjmp_buf resume_;
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit MemoryFault* here_ = nullptr;
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool reports_ = false;
};

}  // namespace farside
