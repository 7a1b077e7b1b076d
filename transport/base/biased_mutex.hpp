// SPDX-License-Identifier: BSD-3-Clause
// A mutex for sections of a few instructions that mostly one thread of the process enters. As long as only one thread
// uses the mutex, it costs that thread stores and loads, but no atomic read-modify-write. Another thread ends this bias
// by the process membarrier; from then on a lock is an atomic operation, and so is an unlock. If the other thread is
// one of farside's own that only visits (only_visits()), the owner takes the bias back when it has entered kBackAfter
// times since the last visit. Any other thread ends the bias for ever.
//
//   the owner                     another thread
//   a. inside = true              1. mode = kRevoking
//   b. read mode                  2. process_membarrier()
//   c. kBiased: in the section    3. sleep until inside is false
//   d. inside = false             4. mode = kShared, wake all that sleep for it
//   e. read mode
//   f. kRevoking: wake the other
//
// The two never are in their sections at once. If the owner's read (b) follows the barrier on its processor, it reads
// kRevoking or kShared, leaves by (d) to (f), and sleeps until the mode is kShared. If the read precedes the barrier,
// so does (a): step 3 sees true until the section has ended (d). This is Dekker's algorithm with a barrier on one side
// only. It holds for the wake as well: if the owner's read (e) precedes the barrier, so does (d), and step 3 does not
// sleep; else it reads kRevoking.
//
// In the mode kShared all threads exclude each other by `shared`. The owner takes the bias back while it has that:
// inside = true, mode = kBiased, and `shared` is unlocked. A thread that gets `shared` afterwards sees the mode,
// unlocks `shared`, and begins with step 1.
//
// Thread safety: any thread; not recursive. Lockable as the standard library says (std::scoped_lock). The mutex must
// outlive the calls of unlock(). Cost: no remote operation; some 10 us when a second thread comes; in the mode kShared
// one atomic operation to lock and one to unlock. A thread that waits spins briefly, yields, and sleeps until it is
// woken (std::atomic::wait). Memory: 16 bytes.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/base/small_mutex.hpp"

namespace farside {

class BiasedMutex {
 public:
  // A second thread that comes once in so many sections adds a tenth of a microsecond to each.
  static constexpr std::uint8_t kBackAfter = 64;

  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

  void lock() {
    if (!enter_as_owner()) [[unlikely]]
      lock_slow();
  }
  void unlock() {
    // Nobody but the owner reads its own `inside` as true here.
    if (owner_.load(std::memory_order_relaxed) == this_thread() && inside_.load(std::memory_order_relaxed)) {
      leave_as_owner();
    } else {
      shared_.unlock();
    }
  }
  // The calling thread, until its end, never becomes an owner, and ends no bias for ever.
  static void only_visits() { visits_ = true; }
  // Whether one thread has it for itself now; for tests.
  bool biased() const { return mode_.load(std::memory_order_relaxed) == Mode::kBiased; }

 private:
  enum class Mode : std::uint8_t { kBiased, kRevoking, kShared };
  static const void* this_thread() { return __builtin_thread_pointer(); }

  bool enter_as_owner() {
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return false;
    inside_.store(true, std::memory_order_relaxed);
    // A barrier for the compiler only. Step 2 makes the barrier on this processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (mode_.load(std::memory_order_acquire) == Mode::kBiased) [[likely]]
      return true;
    leave_as_owner();
    return false;
  }
  void leave_as_owner() {
    inside_.store(false, std::memory_order_release);
    // As in enter_as_owner().
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (mode_.load(std::memory_order_relaxed) == Mode::kRevoking) [[unlikely]]
      wake_revoker();
  }
  void wake_revoker();
  void lock_slow();
  void revoke();
  void take_back();

  static thread_local bool visits_;

  std::atomic<const void*> owner_{nullptr};
  std::atomic<bool> inside_{false};
  std::atomic<Mode> mode_{Mode::kBiased};
  SmallMutex shared_;  // in the mode kShared
  // Guarded by `shared_`:
  bool for_ever_ = false;     // the bias has ended for ever
  std::uint8_t entries_ = 0;  // of the owner since the last visit
};

}  // namespace farside
