// SPDX-License-Identifier: BSD-3-Clause
// What the synchronization calls have in common: how they wait, and check their assertions.
#pragma once

#include "pmpi/fault.hpp"
#include "transport/base/waiter.hpp"
#include "transport/process.hpp"
#include "transport/space/control_memory.hpp"

namespace farside::pmpi {

// MPI 4.0 section 12.5.5; `allowed`: those of allowed_bits, by name.
inline Outcome check_assert(int assert, int allowed_bits, const char* allowed) {
  if ((assert & ~allowed_bits) == 0) return {};
  return Fault{
      MPI_ERR_ASSERT,
      fmt::format("assertion {:#x} is not one of this call; allowed: {} (MPI 4.0 section 12.5.5)", assert, allowed)};
}

// Keeps the endpoint and the MPI runtime moving until done() says true.
template <class Done>
void wait_until(WakeEvent& wake_event, Done&& done) {
  if (done()) return;
  for (Waiter waiter(Process::instance(), wake_event);;) {
    waiter.pause();
    if (done()) return;
  }
}

// Runs a protocol to its end, or until an operation of it has failed.
template <class Protocol>
Status run(WakeEvent& wake_event, Protocol& protocol) {
  ControlMemory::Operation* failed = nullptr;
  wait_until(wake_event, [&] { return protocol.advance() || (failed = protocol.failed_operation()) != nullptr; });
  return failed == nullptr ? Status() : failed->take_error();
}

}  // namespace farside::pmpi
