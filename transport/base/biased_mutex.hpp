// SPDX-License-Identifier: BSD-3-Clause
// A mutex for sections of a few instructions that mostly one thread of the process enters. As long as only one thread
// uses the mutex, it costs that thread stores and loads, but no atomic read-modify-write. Another thread ends this bias
// by the process membarrier; from then on a lock is one atomic exchange, and an unlock a store. A thread that has
// entered kInARow times in a row takes the bias.
//
//   the owner                     another thread
//   a. inside = true              1. state = kRevoking
//   b. read the state             2. process_membarrier()
//   c. itself: in the section     3. wait until the owner's `inside` is false
//   d. inside = false             4. state = kShared
//
// The two never are in their sections at once. If the owner's read (b) follows the barrier on its processor, it reads
// another state, sets `inside` to false, and waits for kShared. If the read precedes the barrier, so does (a): step 3
// sees true until the section has ended (d). This is Dekker's algorithm with a barrier on one side only. Each thread
// has an `inside` of its own, so a former owner that reads the state late disturbs nobody.
//
// In the state kShared all threads exclude each other by `locked`. The thread that has it takes the bias so: inside =
// true, state = itself, locked = false. A thread that gets `locked` afterwards sees the state, gives `locked` back, and
// begins with step 1.
//
// Thread safety: any thread; not recursive. Lockable as the standard library says (std::scoped_lock). Cost: no remote
// operation; some 10 us when another thread comes. A thread that waits spins, yields, and then sleeps for 50 us at a
// time. A thread without a number of its own (thread_slot.hpp) never has the bias. Memory: 16 bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

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
    // Only the calling thread writes its `inside`.
    std::atomic<bool>& inside = inside_[static_cast<std::size_t>(ThreadSlot::get())];
    if (inside.load(std::memory_order_relaxed)) {
      inside.store(false, std::memory_order_release);
    } else {
      locked_.store(false, std::memory_order_release);
    }
  }
  // The calling thread never takes a bias, until its end.
  static void only_visits() { visits_ = true; }
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
    inside.store(false, std::memory_order_release);
    return false;
  }
  void lock_slow();
  static bool may_own(int thread);
  void revoke(std::uint8_t owner);
  void take(int thread);

  static thread_local bool visits_;

  std::array<std::atomic<bool>, kOwnSlots + 1> inside_{};  // by thread; the last one stays false
  std::atomic<std::uint8_t> state_{kNew};
  std::atomic<bool> locked_{false};  // in the state kShared
  // Guarded by `locked_`:
  std::uint8_t last_ = kNew;   // the number of the thread that entered last
  std::uint16_t entries_ = 0;  // of that thread in a row
};

}  // namespace farside
