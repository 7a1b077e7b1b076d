// SPDX-License-Identifier: BSD-3-Clause
// All thread-local variables, and the variables of the process with base/'s own state and the place of Process
// (transport/process.hpp), which owns that of transport/. Both are constant-initialized: no access passes a guard.
//
// Code that runs several threads or processes of farside as fibers of one thread exchanges these two structs as a whole
// when it switches (and pmpi/library/library.hpp): no pointer to them outlives a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>

#include "transport/base/atomics.hpp"
#include "transport/base/ticks.hpp"

namespace farside {

class MemoryFault;
class Process;
class Trace;
struct OnNodePeers;
struct ProcessNonce;
struct ThreadObject;

struct ThreadState {
  int slot = -1;                    // ThreadSlot
  Stores stores;                    // in all spaces
  bool never_owns = false;          // BiasedMutex
  bool reporting = false;           // in LongWait::report()
  bool reports_faults = false;      // MemoryFault::Reported
  int tries_left = 0;               // PatientAllocation
  unsigned runtime_calls = 0;       // of WindowState::progress_runtime()
  int windows_held = 0;             // by Requests
  ThreadObject* objects = nullptr;  // PerThread
  const void* reason = nullptr;     // the innermost LongWait::Reason
  MemoryFault* fault = nullptr;     // the innermost one
  // The total time that the thread has waited inside farside, and the end of its last wait. The difference of two reads
  // of the total is the waiting time of the calls between them. Waiter measures it only for statistics or a trace.
  Ticks waited = 0, last_wait_end = 0;
  // The derived datatype that was found last: its handle, its translation, and how many types had been freed.
  struct {
    std::uintptr_t handle = 0;
    std::uint64_t freed = 0;
    const void* datatype = nullptr;
  } type;
};
static_assert(std::is_trivially_copyable_v<ThreadState>);

// The model of its storage saves a call per access, and takes no lock (PerThread in threads.hpp). Where farside is
// loaded late, the struct must fit into the loader's reserve for libraries, some hundred bytes.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit ThreadState this_thread;

// Base of the classes whose objects are neither copied nor moved.
struct NotCopied {
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

// A T that is made at its first use, and never destroyed: threads of the application may still be in farside when the
// process exits. Thread safety: any; the constructor of T must not use the object. Cost: one load.
template <class T>
class MadeOnce {
 public:
  T& operator*() {
    T* const made = made_.load(std::memory_order_acquire);
    return made != nullptr ? *made : make();
  }
  T* operator->() { return &**this; }

 private:
  [[gnu::noinline, gnu::cold]] T& make() {
    const std::scoped_lock held(making_);
    T* made = made_.load(std::memory_order_relaxed);
    if (made == nullptr) made_.store(made = new T(), std::memory_order_release);
    return *made;
  }

  std::atomic<T*> made_{nullptr};
  std::mutex making_;
};

enum class LogLevel : int { kError, kWarn, kInfo, kDebug };

struct ProcessState {
  std::atomic<LogLevel> log_level{LogLevel::kWarn};
  std::atomic<int> log_rank{-1};               // -1: none
  std::atomic<bool> measures_waits{false};     // Waiter
  std::atomic<std::int64_t> hang_limit{0};     // LongWait::limit(), in seconds
  std::atomic<std::uint32_t> thread_slots{0};  // a bit for each that a thread has
  std::atomic<Trace*> trace{nullptr};          // never destroyed: threads may still record
  std::mutex logged_mutex;                     // guards the next member
  MadeOnce<std::set<std::string>> logged;      // Log::is_new()
  MadeOnce<ProcessNonce> nonce;
  MadeOnce<OnNodePeers> on_node_peers;
  MadeOnce<Process> process;
};

inline constinit ProcessState this_process;

}  // namespace farside
