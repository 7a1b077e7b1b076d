// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the synchronization calls: waiting, and the check of assertions. Thread safety: any thread.
#pragma once

#include <chrono>
#include <utility>

#include "pmpi/fault.hpp"
#include "transport/base/waiter.hpp"
#include "transport/process.hpp"
#include "transport/space/control_memory.hpp"

namespace farside::pmpi {

// Waits until done() returns true, and meanwhile moves the endpoint and the MPI runtime.
template <class Done>
void wait_until(WakeEvent& wake_event, Done&& done) {
  if (done()) return;
  for (Waiter waiter(Process::instance(), wake_event);;) {
    waiter.pause();
    if (done()) return;
  }
}

// The limit of a wait for a notification that may be lost (ControlRoute::interrupted_since), or may only be late. One
// object per wait. Not thread-safe.
class LossTimeout {
 public:
  // `rank`: the rank from which such a notification is awaited, or -1 if there is none. Returns whether it has been
  // awaited for FARSIDE_PEER_TIMEOUT (0: never). The caller calls this function repeatedly.
  bool is_expired(int rank) {
    if (rank < 0) [[likely]]
      return false;
    const std::chrono::seconds timeout(Process::instance().settings().value()->peer_timeout);
    const Clock::time_point now = Clock::now();
    if (std::exchange(rank_, rank) != rank) begin_ = now;
    return timeout.count() > 0 && now - begin_ >= timeout;
  }
  // The error then.
  Error error() const {
    return {ErrorKind::kPeer, "the connection was lost, and a notification of the rank perhaps with it", rank_};
  }

 private:
  using Clock = std::chrono::steady_clock;
  int rank_ = -1;
  Clock::time_point begin_{};
};

// Runs a protocol to its end, or until one of its operations has failed; returns the error of that operation.
template <class Protocol>
Status run(WakeEvent& wake_event, Protocol& protocol) {
  ControlMemory::Operation* failed = nullptr;
  wait_until(wake_event, [&] { return protocol.advance() || (failed = protocol.failed_operation()) != nullptr; });
  return failed == nullptr ? Status() : failed->take_error();
}

}  // namespace farside::pmpi
