// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/process_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <sys/prctl.h>
#include <vector>

#include <fmt/format.h>

#include "transport/data/layout.hpp"

namespace farside {

namespace {

constexpr std::size_t kStretch = 64 * 1024;

std::size_t distance(std::ptrdiff_t stride) { return static_cast<std::size_t>(stride < 0 ? -stride : stride); }

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

Status transfer(Transfer call, const char* name, pid_t pid, std::uint64_t remote, void* local, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(local);
  while (bytes > 0) {
    const iovec here{at, bytes};
    const iovec there{reinterpret_cast<void*>(remote), bytes};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t moved = call(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (moved < 0 && errno == EINTR) continue;
      const int code = moved < 0 ? errno : 0;
      // EFAULT: a hole there, or memory beyond the end of a file (or the local buffer is bad).
      const ErrorKind kind = code == EFAULT  ? ErrorKind::kRange
                             : code == EPERM ? ErrorKind::kNoRoute
                                             : ErrorKind::kPeer;
      return Error{kind, fmt::format("{} of {} bytes at {:#x} of process {}: {}{}", name, bytes, remote, pid,
                                     code == 0 ? "nothing moved" : std::strerror(code),
                                     code == EPERM ? " (has it become not dumpable, prctl(2)?)" : "")};
    }
    at += moved;
    remote += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace

Status read_process_memory(pid_t pid, std::uint64_t remote, void* local, std::size_t bytes) {
  return transfer(process_vm_readv, "process_vm_readv", pid, remote, local, bytes);
}

bool is_reading_gaps_faster(std::size_t bytes, std::size_t blocks, std::ptrdiff_t stride) {
  // A read of 64 KiB takes 8 us. To wake the other process's thread takes 10 us, and the thread takes 2 us per 8 KiB.
  constexpr std::size_t kDense = 4;
  const std::size_t apart = distance(stride);
  return blocks > 1 && ((blocks - 1) * apart + bytes <= kStretch || apart <= kDense * bytes);
}

Status read_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, std::byte* local,
                           std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks) {
  const std::size_t apart = distance(stride);
  const std::size_t at_once = bytes >= kStretch ? 1 : apart == 0 ? blocks : 1 + (kStretch - bytes) / apart;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::max(bytes, kStretch));
  while (blocks > 0) {
    const std::size_t part = std::min(blocks, at_once);
    const std::size_t behind = (part - 1) * apart;
    const std::uint64_t lowest = stride < 0 ? remote - behind : remote;
    if (Status status = read_process_memory(pid, lowest, buffer.get(), behind + bytes); !status) return status;
    copy_ranges(local, local_stride, buffer.get() + (stride < 0 ? behind : 0), stride, bytes, part);
    remote += part * static_cast<std::uint64_t>(stride);
    local += static_cast<std::ptrdiff_t>(part) * local_stride;
    blocks -= part;
  }
  return {};
}

Status write_process_memory(pid_t pid, std::uint64_t remote, const void* local, std::size_t bytes) {
  return transfer(process_vm_writev, "process_vm_writev", pid, remote, const_cast<void*>(local), bytes);
}

Status write_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, const std::byte* local,
                            std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks) {
  if (stride == static_cast<std::ptrdiff_t>(bytes) && bytes < kStretch) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(kStretch, bytes * blocks));
    while (blocks > 0) {
      const std::size_t part = std::min(blocks, kStretch / bytes);
      copy_ranges(buffer.get(), stride, local, local_stride, bytes, part);
      if (Status status = write_process_memory(pid, remote, buffer.get(), part * bytes); !status) return status;
      local += static_cast<std::ptrdiff_t>(part) * local_stride;
      remote += part * bytes;
      blocks -= part;
    }
    return {};
  }
  std::vector<iovec> here(blocks), there(blocks);
  for (std::size_t block = 0; block < blocks; ++block) {
    here[block] = {const_cast<std::byte*>(local), bytes};
    there[block] = {reinterpret_cast<void*>(remote), bytes};  // NOLINT(performance-no-int-to-ptr)
    local += local_stride;
    remote += static_cast<std::uint64_t>(stride);
  }
  return write_process_memory(pid, here, there);
}

Status write_process_memory(pid_t pid, std::span<const iovec> local, std::span<const iovec> remote) {
  // If the kernel has written only a part, which it does at a fault or a limit only, repeats the fragments one by one.
  constexpr std::size_t kMost = 1024;  // UIO_MAXIOV
  for (std::size_t done = 0; done < local.size();) {
    const std::size_t part = std::min(local.size() - done, kMost);
    std::size_t bytes = 0;
    for (const iovec& fragment : local.subspan(done, part)) bytes += fragment.iov_len;
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

// Ignores errors: where Yama is not there it needs no permission, and where the permission is refused or does not
// suffice a peer's first attempt to read fails, and the peer takes another route.
void PeerPermission::need() {
  needed_.store(true, std::memory_order_relaxed);
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace farside
