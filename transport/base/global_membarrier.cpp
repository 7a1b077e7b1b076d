// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/global_membarrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farside {
namespace {

bool call(int command) { return syscall(SYS_membarrier, command, 0U, 0) == 0; }

[[maybe_unused]] const bool asked_when_loaded =
    call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);

}  // namespace

// Registers again, for a process that was forked since. If the process is registered, the kernel returns at once.
bool supports_global_membarrier() { return call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); }

bool supports_process_membarrier() { return call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

bool process_membarrier() { return call(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

bool global_membarrier() { return call(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace farside
