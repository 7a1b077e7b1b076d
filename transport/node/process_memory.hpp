// SPDX-License-Identifier: BSD-3-Clause
// Private memory of another process of the node, by process_vm_readv(2) and process_vm_writev(2) (CMA). Where the Yama
// security module guards it, that process must be open to its peers (open_to_peers.hpp).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/result.hpp"

namespace farside {

// Both return when all bytes have moved. Errors: kPeer, with the cause.
Status read_process_memory(pid_t pid, std::uint64_t remote, void* local, std::size_t bytes);
Status write_process_memory(pid_t pid, std::uint64_t remote, const void* local, std::size_t bytes);
// Blocks of `bytes` at distances of their own, with what lies between them, which must be there: one call for 64 KiB.
Status read_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, std::byte* local,
                           std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks);
// Whether that is faster than to ask the other process for them.
bool pays_to_read_stretches(std::size_t bytes, std::size_t blocks, std::ptrdiff_t stride);
// Written they are alone: 1,024 by one call, and 64 KiB where they are dense there.
Status write_process_memory(pid_t pid, std::uint64_t remote, std::ptrdiff_t stride, const std::byte* local,
                            std::ptrdiff_t local_stride, std::size_t bytes, std::size_t blocks);
// Many pieces, each as long there as here.
Status write_process_memory(pid_t pid, std::span<const iovec> local, std::span<const iovec> remote);

}  // namespace farside
