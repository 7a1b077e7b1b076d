// SPDX-License-Identifier: BSD-3-Clause
// Membarriers (membarrier(2)), of the node's registered processes and of this process alone. By the global membarrier
// (MEMBARRIER_CMD_GLOBAL_EXPEDITED) one thread makes all threads of the registered processes execute a full memory
// barrier. So a frequent operation that stores one word and loads another needs no barrier of its own, if the rare
// operation on the other side calls this one.
#pragma once

namespace farside {

// Returns whether this process is registered. farside registers it when it is loaded: with one thread a registration
// takes a microsecond, with several threads some 10 ms.
bool supports_global_membarrier();

// Between the call and its return, the caller and all threads of the registered processes execute a full memory
// barrier. Returns false, without any guarantee, if the kernel refuses.
bool global_membarrier();

// The same two for the threads of this process alone (MEMBARRIER_CMD_PRIVATE_EXPEDITED): other processes of the node
// are not interrupted.
bool supports_process_membarrier();
bool process_membarrier();

}  // namespace farside
