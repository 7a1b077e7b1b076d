// SPDX-License-Identifier: BSD-3-Clause
// All thread-local variables of farside. Code that runs several threads as fibers of one exchanges `this_thread` as a
// whole when it switches: the struct is trivially copyable, and no pointer to it outlives a call.
//
// Static thread-local storage saves a call per access and takes no lock (PerThread in threads.hpp). Where farside is
// loaded late, the struct must fit into the loader's reserve for libraries, some hundred bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "transport/base/atomics.hpp"
#include "transport/base/ticks.hpp"

namespace farside {

class MemoryFault;
struct ThreadObject;

struct ThreadState {
  int slot = -1;                    // ThreadSlot
  Stores stores;                    // in all spaces
  bool never_owns = false;          // BiasedMutex
  bool reporting = false;           // in LongWait::report()
  bool reports_faults = false;      // MemoryFault::Reported
  int tries_left = 0;               // PatientAllocation
  unsigned runtime_calls = 0;       // of Window::progress_runtime()
  int windows_held = 0;             // by Requests
  ThreadObject* objects = nullptr;  // PerThread
  const void* reason = nullptr;     // the innermost LongWait::Reason
  MemoryFault* fault = nullptr;     // the innermost one
  // The total time that the thread has waited inside farside, and the end of its last wait. The difference of two reads
  // of the total is the waiting time of the calls between them. Waiter measures it only for statistics or a trace.
  Ticks waited = 0;
  Ticks last_wait_end = 0;
  // The derived datatype that was found last: its handle, its translation, and how many types had been freed.
  struct {
    std::uintptr_t handle = 0;
    std::uint64_t freed = 0;
    const void* datatype = nullptr;
  } type;
};
static_assert(std::is_trivially_copyable_v<ThreadState>);

[[gnu::tls_model("initial-exec")]] inline thread_local constinit ThreadState this_thread;

}  // namespace farside
