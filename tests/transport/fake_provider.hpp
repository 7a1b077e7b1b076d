// SPDX-License-Identifier: BSD-3-Clause
// A provider of libfabric in memory, for endpoints within this process. It takes itself for an adapter (verbs), and its
// queues have exactly the sizes that farside asks for. It moves data at once, and counts what an adapter would not
// forgive.
#pragma once

#include <cstddef>
#include <set>
#include <thread>

#include "transport/fabric/handles.hpp"

namespace farside::testing {

// What Fabric::open needs to open it.
InfoHandle fake_provider();

struct FakeQueues {
  // Operations and receives that were posted while a completion queue had no entry left for their completions.
  std::size_t overruns = 0;
  // Messages that arrived where no receive was posted. They wait for one.
  std::size_t not_ready = 0;
  std::size_t messages = 0;
  // The threads that have taken completions from a queue.
  std::set<std::thread::id> readers;
};
// The numbers since the last call.
FakeQueues fake_queues();

// From its construction to end() a call that writes to the address `call` does not return, and a write to `completion`
// does not complete. One at a time.
class FakeHold {
 public:
  FakeHold(const void* call, const void* completion);
  FakeHold(const FakeHold&) = delete;
  FakeHold& operator=(const FakeHold&) = delete;
  ~FakeHold() { end(); }
  // Waits until a thread is in such a call.
  static void wait_for_call();
  static void end();
};

}  // namespace farside::testing
