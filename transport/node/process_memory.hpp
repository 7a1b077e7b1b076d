// SPDX-License-Identifier: BSD-3-Clause
// Access to the private memory of another process of the node, by process_vm_readv(2) and process_vm_writev(2) (CMA).
// With the Yama security module, that process must permit it (see below).
//
// Thread safety: any. Every function returns when all bytes have been copied. Errors: kPeer, kRange for memory that is
// not mapped, and kNoRoute if the kernel does not permit the access (any more: the process has become not dumpable).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/types.h>
#include <sys/uio.h>

#include "transport/base/result.hpp"

namespace farside {

Status read_process_memory(pid_t pid, std::uint64_t remote, void* local, std::size_t bytes);
Status write_process_memory(pid_t pid, std::uint64_t remote, const void* local, std::size_t bytes);
// Reads blocks of `bytes` bytes. It reads the memory between the blocks, too, which must be mapped there. One system
// call reads up to 64 KiB.
Status read_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, std::byte* local,
                           std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks);
// Returns whether such a read is faster than a request to the other process's handler.
bool is_reading_gaps_faster(std::size_t bytes, std::size_t blocks, std::ptrdiff_t stride);
// Writes blocks of `bytes` bytes, and nothing between them. One system call writes up to 1,024 blocks, or up to 64 KiB
// of blocks that are contiguous in the other process.
Status write_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, const std::byte* local,
                            std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks);
// Writes many fragments: remote[i] has the length of local[i].
Status write_process_memory(pid_t pid, std::span<const iovec> local, std::span<const iovec> remote);

// The permission for other processes of this user to call process_vm_readv(2) and process_vm_writev(2) on this process.
// The Yama security module requires it if kernel.yama.ptrace_scope is 1. Yama has one such permission per process, and
// it includes more than these calls: with it, any process of this user may also attach a debugger. So farside gives the
// permission only when a peer needs it. farside does not revoke it: the MPI runtimes give the same permission for their
// own messages inside a node, which would fail without it, and no call tells whether a process has given it.
// Thread safety: any. Cost: a system call.
class PeerPermission {
 public:
  // Notes that a peer needs the permission, and gives it.
  void need();
  // Returns whether a peer has needed the permission.
  bool needed() const { return needed_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> needed_{false};
};

}  // namespace farside
