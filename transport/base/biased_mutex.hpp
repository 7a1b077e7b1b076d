// SPDX-License-Identifier: BSD-3-Clause
// A mutex for sections of a few instructions that mostly one thread of the process enters. As long as only one thread
// uses the mutex, it costs that thread stores and loads, but no atomic read-modify-write. Another thread ends this bias
// by the process membarrier; from then on a lock is an atomic operation, and so is an unlock. A thread that has entered
// kInARow times in a row takes the bias.
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
// woken (std::atomic::wait). A thread without a number of its own (thread_slot.hpp) never has the bias. Memory: 16
// bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "transport/base/small_mutex.hpp"
#include "transport/base/thread_slot.hpp"

namespace farside {

class BiasedMutex {
 public:
  // If threads alternate, the end of a bias adds a hundredth of a microsecond to each of so many sections, which is
  // what the bias saves.
  static constexpr std::uint16_t kInARow = 1024;

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
  static void this_thread_never_owns() { never_owns_ = true; }
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

  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit bool never_owns_ = false;

  std::array<std::atomic<bool>, kOwnSlots + 1> inside_{};  // by thread; the last one stays false
  std::atomic<std::uint8_t> state_{kNew};
  SmallMutex shared_;  // in the state kShared
  // Guarded by `shared_`:
  std::uint8_t last_ = kNew;   // the number of the thread that entered last
  std::uint16_t entries_ = 0;  // of that thread in a row
};

}  // namespace farside
