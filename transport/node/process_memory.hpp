// SPDX-License-Identifier: BSD-3-Clause
// Private memory of another process of the node, by process_vm_readv(2) and process_vm_writev(2) (CMA).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/result.hpp"

namespace farside {

// Lets processes of this user use the two calls on this one where the Yama security module asks for it.
void allow_process_memory_access();

// Both return when all bytes have moved. Errors: kPeer, with the cause.
Status read_process_memory(pid_t pid, std::uint64_t remote, void* local, std::size_t bytes);
Status write_process_memory(pid_t pid, std::uint64_t remote, const void* local, std::size_t bytes);
// The same for many pieces at once, each as long there as here.
Status write_process_memory(pid_t pid, std::span<const iovec> local, std::span<const iovec> remote);

}  // namespace farside
