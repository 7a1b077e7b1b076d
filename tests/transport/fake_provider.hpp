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

// What Fabric::open needs to open it. A message or an operation has at most so many bytes.
InfoHandle fake_provider(std::size_t largest = std::size_t{1} << 30);

struct FakeQueues {
  // Operations and receives that were posted while a completion queue had no entry left for their completions.
  std::size_t overruns = 0;
  // Messages that arrived where no receive was posted. They wait for one.
  std::size_t not_ready = 0;
  std::size_t messages = 0;
  // Writes, among them those that were not to be reported (fi_inject_write), and empty ones.
  std::size_t writes = 0, silent_writes = 0, empty_writes = 0;
  // Completions of operations that farside has read, and those that the adapter made for them: as libfabric's verbs
  // provider, it drops the completions of silent writes, and their errors, when the queue is read.
  std::size_t reported = 0, signalled = 0;
  // Registrations of memory that were refused.
  std::size_t refused_memory = 0;
  // From where the last write took its data.
  const void* last_from = nullptr;
  // The threads that have taken completions from a queue.
  std::set<std::thread::id> readers;
};
// The numbers since the last call.
FakeQueues fake_queues();

// The next writes are refused (-FI_EAGAIN).
void fake_refusal(std::size_t writes);
// The write behind so many others fails, as a queue pair does: all later operations of its connection fail as well.
void fake_failure(std::size_t behind);
// What guards the provider, which no lock of farside is.
const void* fake_mutex();

// While it exists, no more than so many bytes can be registered beyond those that are, in all processes together
// (-FI_ENOMEM, as by RLIMIT_MEMLOCK). At least one; one at a time.
class FakeMemoryLimit {
 public:
  explicit FakeMemoryLimit(std::size_t more);
  FakeMemoryLimit(const FakeMemoryLimit&) = delete;
  FakeMemoryLimit& operator=(const FakeMemoryLimit&) = delete;
  ~FakeMemoryLimit();
};

// While it exists, only the thread that has made it takes completions of RDMA, so that what it issues stays under way
// until it polls; or all completions and events, so that for the others nothing has happened yet. One at a time.
class FakeReader {
 public:
  enum class Of : std::uint8_t { kRdma, kEverything };
  explicit FakeReader(Of what);
  FakeReader(const FakeReader&) = delete;
  FakeReader& operator=(const FakeReader&) = delete;
  ~FakeReader();
};

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
