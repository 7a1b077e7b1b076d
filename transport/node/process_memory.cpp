// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/process_memory.hpp"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace farside {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

Status transfer(Transfer call, const char* name, pid_t pid, std::uint64_t remote, void* local, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(local);
  while (bytes > 0) {
    const iovec here{at, bytes};
    const iovec there{reinterpret_cast<void*>(remote), bytes};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t moved = call(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (moved < 0 && errno == EINTR) continue;
      return Error{ErrorKind::kPeer, fmt::format("{} of {} bytes at {:#x} of process {}: {}", name, bytes, remote, pid,
                                                 moved == 0 ? "nothing moved" : std::strerror(errno))};
    }
    at += moved;
    remote += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

void allow_process_memory_access() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

Status read_process_memory(pid_t pid, std::uint64_t remote, void* local, std::size_t bytes) {
  return transfer(process_vm_readv, "process_vm_readv", pid, remote, local, bytes);
}

Status write_process_memory(pid_t pid, std::uint64_t remote, const void* local, std::size_t bytes) {
  return transfer(process_vm_writev, "process_vm_writev", pid, remote, const_cast<void*>(local), bytes);
}

Status write_process_memory(pid_t pid, std::span<const iovec> local, std::span<const iovec> remote) {
  // Piece by piece where the kernel took but a part, which it does at a fault or a limit only.
  constexpr std::size_t kMost = 1024;  // UIO_MAXIOV
  for (std::size_t done = 0; done < local.size();) {
    const std::size_t part = std::min(local.size() - done, kMost);
    std::size_t bytes = 0;
    for (const iovec& piece : local.subspan(done, part)) bytes += piece.iov_len;
    if (process_vm_writev(pid, &local[done], part, &remote[done], part, 0) != static_cast<ssize_t>(bytes)) {
      for (std::size_t i = done; i < done + part; ++i) {
        const auto at = reinterpret_cast<std::uint64_t>(remote[i].iov_base);
        Status status = write_process_memory(pid, at, local[i].iov_base, local[i].iov_len);
        if (!status) return status;
      }
    }
    done += part;
  }
  return {};
}

}  // namespace farside
