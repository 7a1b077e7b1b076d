// SPDX-License-Identifier: BSD-3-Clause
// Mutexes for sections of a few instructions, and a guard for objects that foreign code enters.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <thread>

#include "transport/base/pause.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"

namespace farside {

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
// The two never are in their sections at once. If the owner's read (b) follows the barrier on its processor, it reads
// another state, leaves by (d) to (f), and sleeps until the state is kShared. If the read precedes the barrier, so does
// (a): step 3 sees true until the section has ended (d). This is Dekker's algorithm with a barrier on one side only. It
// holds for the wake as well: if the owner's read (e) precedes the barrier, so does (d), and step 3 does not sleep;
// else it reads kRevoking. Each thread has an `inside` of its own, so a former owner that reads the state late disturbs
// nobody.
//
// In the state kShared all threads exclude each other by `shared`. The thread that has it takes the bias so: inside =
// true, state = itself, and `shared` is unlocked. A thread that gets `shared` afterwards sees the state, unlocks
// `shared`, and begins with step 1.
//
// Thread safety: any thread; not recursive. Lockable as the standard library says (std::scoped_lock). The mutex must
// outlive the calls of unlock(). Cost: no remote operation; some 10 us when another thread comes; in the state kShared
// one atomic operation to lock and one to unlock. A thread that waits spins briefly, yields, and sleeps until it is
// woken (std::atomic::wait). A thread without a number of its own (ThreadSlot) never has the bias. Memory: 16 bytes.
class BiasedMutex {
 public:
  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

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
  void take(int thread);

  std::array<std::atomic<bool>, kOwnSlots + 1> inside_{};  // by thread; the last one stays false
  std::atomic<std::uint8_t> state_{kNew};
  SmallMutex shared_;  // in the state kShared
  // Guarded by `shared_`:
  std::uint8_t last_ = kNew;   // the number of the thread that entered last
  std::uint16_t entries_ = 0;  // of that thread in a row
};

// Guards an object with a limited life that foreign code enters at any time and from any thread. Admits one thread at a
// time and refuses the others. A closed entrance refuses all threads.
class Entrance {
 public:
  Entrance() = default;
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

  // Returns whether the calling thread is inside now, until leave(). Thread safety: any. Cost: two loads, and an atomic
  // exchange if no thread is inside.
  bool try_enter() { return !closing_.load(std::memory_order_relaxed) && take(); }
  void leave() { taken_.store(false, std::memory_order_release); }

  // Waits until no thread is inside, and refuses all threads until reopen(). The changes of the threads that were
  // inside are visible afterwards. Called by one thread at a time, not from inside.
  void close() {
    // Without this flag, threads that enter repeatedly could overtake this one again and again.
    closing_.store(true, std::memory_order_relaxed);
    for (int i = 0; !take(); ++i) {
      if (i < Timing::kSpins) {
        relax();
      } else if (i < Timing::kSpins + Timing::kYields) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(Timing::kTryAgain);
      }
    }
  }
  void reopen() {
    closing_.store(false, std::memory_order_relaxed);
    leave();
  }

 private:
  bool take() { return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire); }

  std::atomic<bool> closing_{false};
  std::atomic<bool> taken_{false};
};

}  // namespace farside
