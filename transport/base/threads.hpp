// SPDX-License-Identifier: BSD-3-Clause
// The threads of the process: numbers and objects of each, those that farside starts, their signals, membarriers, and
// mutexes for sections of a few instructions.
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/state.hpp"
#include "transport/base/timing.hpp"

namespace farside {

// At most this many threads at a time have their own number (ThreadSlot), from 0 on.
inline constexpr int kOwnSlots = 7;

// A small number for each thread of this process that uses windows, so that threads can write to their own places.
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

// Blocks all signals of the calling thread during its life: a signal handler that needs a mutex of farside (as fork(2)
// does) would deadlock if its own thread held the mutex. But not those of faults: a fault whose signal is blocked ends
// the process, whatever its handler. Cost: two system calls.
class SignalsBlocked : NotCopied {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    // With these arguments pthread_sigmask(3) cannot fail. The same holds for the call in the destructor.
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
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

// Starts a thread of farside. It blocks all signals but those of faults, as they belong to the application's threads.
// `name`: at most 15 characters (pthread_setname_np(3)). Errors: kOther.
template <class Run>
Status start_own_thread(std::thread& thread, const char* name, Run&& run) {
  const SignalsBlocked inherited;
  std::string refused;
  Status begun = without_bad_alloc([&] {
    try {
      thread = std::thread([run = std::forward<Run>(run)]() mutable {
        if (Status carried = without_bad_alloc(run); !carried)
          Log::write_parts({"farside: error: a thread of farside has ended: out of memory\n"});
      });
    } catch (const std::system_error& error) {
      refused = error.what();
    }
  });
  if (!begun) return begun;
  if (!thread.joinable()) return Error{ErrorKind::kOther, fmt::format("no thread {}: {}", name, refused)};
  pthread_setname_np(thread.native_handle(), name);
  return {};
}

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

// While an object of this class lives, each allocation by operator new in its thread that lacks memory is tried again
// for up to a second: where something has begun that can neither be repeated nor be left, for instance a protocol in
// which other ranks wait for this one. (patiently() repeats work that can be repeated, and costs
// nothing until memory lacks.)
//
// It acts as the new handler of the process (std::set_new_handler), and calls the program's own handler elsewhere. An
// operator new of the program that calls no new handler is not tried again.
//
// Thread safety: any. Cost: some 5 ns.
class PatientAllocation : NotCopied {
 public:
  PatientAllocation() : before_(this_thread.tries_left) {
    if (std::get_new_handler() != on_no_memory) {
      // Another thread may do the same.
      const std::new_handler before = std::set_new_handler(on_no_memory);
      if (before != on_no_memory) of_program_.store(before, std::memory_order_relaxed);
    }
    this_thread.tries_left = Timing::kTriesForMemory;
  }
  ~PatientAllocation() { this_thread.tries_left = before_; }

 private:
  // Returns if the allocation is to be tried again.
  static void on_no_memory() {
    if (this_thread.tries_left > 0) {
      --this_thread.tries_left;
      return std::this_thread::sleep_for(Timing::kTryAgain);
    }
    const std::new_handler next = of_program_.load(std::memory_order_relaxed);
    if (next == nullptr) throw std::bad_alloc();
    next();
  }

  static inline constinit std::atomic<std::new_handler> of_program_{nullptr};
  const int before_;
};

// A mutex of one byte, for objects of which a process has thousands. To be held for a few loads and stores only. Thread
// safety: any. Cost: one atomic operation to lock and one to unlock, both of its own byte, while no other thread waits;
// a waiting thread spins briefly, yields and sleeps (std::atomic::wait).
class SmallMutex {
 public:
  void lock() {
    std::uint8_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire, std::memory_order_relaxed))
        [[likely]]
      return;
    while (state_.exchange(kWaited, std::memory_order_acquire) != kFree)
      state_.wait(kWaited, std::memory_order_relaxed);
  }
  // libstdc++ notes each notification in one of 16 words of the process, so there is one only if a thread may wait.
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaited) state_.notify_one();
  }

 private:
  // kWaited: locked, and other threads may wait.
  static constexpr std::uint8_t kFree = 0, kLocked = 1, kWaited = 2;
  std::atomic<std::uint8_t> state_{kFree};
};

// A mutex for sections of a few instructions that mostly one thread of the process enters. As long as only one thread
// uses the mutex, it costs that thread stores and loads, but no atomic read-modify-write. Another thread ends this bias
// by the process membarrier; from then on a lock is an atomic operation, and so is an unlock. A thread that has entered
// Timing::kInARow times in a row takes the bias.
//
//   the owner                     another thread
//   a. inside = true              1. state = kRevoking
//   b. read the state             2. process_membarrier()
//   c. itself: in the section     3. sleep until the owner's `inside` is false
//   d. inside = false             4. state = kShared, wake all that sleep for it
//   e. read the state
//   f. kRevoking: wake the other
//
// This is Dekker's algorithm with a barrier on one side only. If the owner's read (b) follows the barrier on its
// processor, it reads another state, leaves by (d) to (f), and sleeps until the state is kShared. If the read precedes
// the barrier, so does (a): step 3 sees true until the section has ended (d). The same holds for the wake: if the read
// (e) precedes the barrier, so does (d), and step 3 does not sleep. Each thread has its own `inside`, so a former
// owner that reads the state late disturbs no thread.
//
// In the state kShared all threads exclude each other by `shared`. The thread that has it takes the bias so: inside =
// true, state = itself, and `shared` is unlocked. A thread that gets `shared` then begins with step 1.
//
// Thread safety: any thread; not recursive. Lockable as the standard library says (std::scoped_lock). The mutex must
// outlive the calls of unlock(). Cost: no remote operation; some 10 us when another thread comes; in the state kShared
// one atomic operation to lock and one to unlock. A thread that waits spins briefly, yields, and sleeps until it is
// woken (std::atomic::wait). A thread without its own number (ThreadSlot) never has the bias. Memory: 16 bytes.
class BiasedMutex {
 public:
  [[gnu::always_inline]] void lock() {
    if (!enter_as_owner(ThreadSlot::get())) [[unlikely]]
      lock_slow();
  }
  [[gnu::always_inline]] void unlock() {
    const int thread = ThreadSlot::get();
    // Only the calling thread writes its `inside`.
    if (inside_[static_cast<std::size_t>(thread)].load(std::memory_order_relaxed)) {
      leave_as_owner(thread);
    } else {
      shared_.unlock();
    }
  }
  // The calling thread never takes a bias, until its end.
  static void this_thread_never_owns() { this_thread.never_owns = true; }
  // Whether one thread has it for itself now; for tests.
  bool biased() const { return state_.load(std::memory_order_relaxed) < kOwnSlots; }

 private:
  // The state is the number of the thread that has the bias, or one of these.
  static constexpr std::uint8_t kRevoking = 0x81, kShared = 0x82, kNew = 0x83;  // kNew: no thread has come yet

  [[gnu::always_inline]] bool enter_as_owner(int thread) {
    if (state_.load(std::memory_order_relaxed) != thread) return false;
    std::atomic<bool>& inside = inside_[static_cast<std::size_t>(thread)];
    inside.store(true, std::memory_order_relaxed);
    // A barrier for the compiler only. Step 2 makes the barrier on this processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (state_.load(std::memory_order_acquire) == thread) [[likely]]
      return true;
    leave_as_owner(thread);
    return false;
  }
  [[gnu::always_inline]] void leave_as_owner(int thread) {
    inside_[static_cast<std::size_t>(thread)].store(false, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // as in enter_as_owner()
    if (state_.load(std::memory_order_relaxed) == kRevoking) [[unlikely]]
      wake_revoker(thread);
  }
  void lock_slow();
  static bool may_own(int thread);
  void revoke(std::uint8_t owner);
  void wake_revoker(int thread);

  std::array<std::atomic<bool>, kOwnSlots + 1> inside_{};  // by thread; the last one stays false
  std::atomic<std::uint8_t> state_{kNew};
  SmallMutex shared_;  // in the state kShared
  // Guarded by `shared_`:
  std::uint8_t last_ = kNew;   // the number of the thread that entered last
  std::uint16_t entries_ = 0;  // of that thread in a row
};

}  // namespace farside
