// SPDX-License-Identifier: BSD-3-Clause
// A libfabric provider in memory, for endpoints within this process. It presents itself as an adapter (verbs), and its
// queues have exactly the sizes that farside requests. It moves data at once, and counts the events that are errors on
// an adapter, such as overruns of a queue.
#pragma once

#include <cstddef>
#include <set>
#include <thread>

#include "transport/fabric/handles.hpp"

namespace farside::testing {

// How the provider carries out 64-bit atomics, if it has some.
struct FakeAtomics {
  bool by_value = false;      // it takes the address of an operand for its value, as libfabric before 2.2
  bool swaps_result = false;  // it returns fetched values in the other byte order
  bool lose = false;          // they do not change the memory
};
// Returns the info with which Fabric::open opens the provider. `largest`: the limit of a message or operation, in
// bytes.
InfoHandle fake_provider(std::size_t largest = std::size_t{1} << 30, const FakeAtomics* atomics = nullptr);

struct FakeQueues {
  // Operations and receives that were posted while a completion queue had no entry left for their completions.
  std::size_t overruns = 0;
  // Messages that arrived when no receive was posted. Each waits for a receive.
  std::size_t not_ready = 0;
  std::size_t messages = 0;
  std::size_t writes = 0;
  // Registrations of memory that were refused.
  std::size_t refused_memory = 0;
  // The threads that have taken completions from a queue.
  std::set<std::thread::id> readers;
};
// Returns the counts since the last call.
FakeQueues fake_queues();

// During the life of this object, all processes together can register at most `more` further bytes. Other registrations
// fail with -FI_ENOMEM, as under RLIMIT_MEMLOCK. `more` is at least 1. At most one such object exists at a time.
class FakeMemoryLimit {
 public:
  explicit FakeMemoryLimit(std::size_t more);
  FakeMemoryLimit(const FakeMemoryLimit&) = delete;
  FakeMemoryLimit& operator=(const FakeMemoryLimit&) = delete;
  ~FakeMemoryLimit();
};

// During the life of this object, only the thread that has made it reads completions of RDMA, so that its operations
// stay outstanding until it polls. At most one such object exists at a time.
class FakeReader {
 public:
  FakeReader();
  FakeReader(const FakeReader&) = delete;
  FakeReader& operator=(const FakeReader&) = delete;
  ~FakeReader();
};

// From its construction to end(), a call that writes to the address `call` does not return, and a write to the address
// `completion` does not complete. At most one such object exists at a time.
class FakeHold {
 public:
  FakeHold(const void* call, const void* completion);
  FakeHold(const FakeHold&) = delete;
  FakeHold& operator=(const FakeHold&) = delete;
  ~FakeHold() { end(); }
  // Waits until a thread is in a call that writes to `call`.
  static void wait_for_call();
  static void end();
};

}  // namespace farside::testing
