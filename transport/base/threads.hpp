// SPDX-License-Identifier: BSD-3-Clause
// The threads of the process: numbers and objects of each, those that farside starts, their signals, and membarriers.
#pragma once

#include <csignal>
#include <mutex>
#include <pthread.h>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/state.hpp"

namespace farside {

// At most this many threads at a time have a number of their own (ThreadSlot), from 0 on.
inline constexpr int kOwnSlots = 7;

// A small number for each thread of this process that uses windows, so that threads can write to places of their own.
// Thread safety: any thread. Cost: one load; an atomic at a thread's first call and at its end.
class ThreadSlot {
 public:
  // The calling thread's number, or kOwnSlots if all are taken: then other threads have the same. A thread that has
  // ended leaves its number to later ones.
  static int get() {
    const int known = this_thread.slot;
    return known >= 0 ? known : take();
  }

 private:
  struct Owned;
  static int take();
};

// An object of a thread, which destroy() destroys.
struct ThreadObject {
  ThreadObject* next = nullptr;
  void (*destroy)(ThreadObject*) = nullptr;
};
// Adds it to those of the calling thread, whose end destroys the last one first.
void add_thread_object(ThreadObject& object);

// PerThread<T>: an object for each thread, made at the thread's first use of it and destroyed at the thread's end (not
// at the end of the process). The type identifies the object.
//
// It stands in place of a thread_local variable with a destructor. The C library registers such a destructor under the
// dynamic linker's lock, which a thread holds while it runs the constructors of a library that it loads (dlopen(3)). If
// that thread waits in an MPI call meanwhile, threads that make its operations progress must not need the lock.
//
// Thread safety: any thread. Cost: a walk over the thread's few objects; an allocation at the first use. Memory: the
// object, and a key of POSIX threads for all; without a free key no object is destroyed.
template <class T>
class PerThread {
 public:
  static T& here() {
    for (ThreadObject* each = this_thread.objects; each != nullptr; each = each->next) {
      if (each->destroy == destroy) return static_cast<Object*>(each)->value;
    }
    auto* const made = new Object{{nullptr, destroy}, T()};
    add_thread_object(*made);
    return made->value;
  }

 private:
  struct Object : ThreadObject {
    T value;
  };
  static void destroy(ThreadObject* object) { delete static_cast<Object*>(object); }
};

// Starts a thread of farside. It blocks all signals, which belong to the application's threads, but not those of
// faults: a fault whose signal is blocked ends the process, whatever its handler. `name`: at most 15 characters
// (pthread_setname_np(3)). Errors: kOther.
template <class Run>
Status start_own_thread(std::thread& thread, const char* name, Run&& run) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  Status begun = without_bad_alloc([&]() -> Status {
    try {
      thread = std::thread([run = std::forward<Run>(run)]() mutable {
        if (Status carried = without_bad_alloc([&]() -> Status { return run(), Status(); }); !carried)
          Log::write_parts({"farside: error: a thread of farside has ended: out of memory\n"});
      });
    } catch (const std::system_error& error) {
      refused = error.what();
    }
    return {};
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!begun) return begun;
  if (!thread.joinable()) return Error{ErrorKind::kOther, fmt::format("no thread {}: {}", name, refused)};
  pthread_setname_np(thread.native_handle(), name);
  return {};
}

// Blocks all signals of the calling thread during its life: a signal handler that needs a mutex of farside (as fork(2)
// does) would deadlock if its own thread held the mutex. Cost: two system calls.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    // With these arguments pthread_sigmask(3) cannot fail. The same holds for the call in the destructor.
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};
// The same, and locks a mutex.
class HeldWithoutSignals {
 public:
  explicit HeldWithoutSignals(std::mutex& mutex) : held_(mutex) {}

 private:
  SignalsBlocked blocked_;
  std::scoped_lock<std::mutex> held_;
};

// Membarriers (membarrier(2)), of the node's registered processes and of this process alone. By the global membarrier
// (MEMBARRIER_CMD_GLOBAL_EXPEDITED) one thread makes all threads of the registered processes execute a full memory
// barrier. So a frequent operation that stores one word and loads another needs no barrier of its own, if the rare
// operation on the other side calls this one.

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
