// SPDX-License-Identifier: BSD-3-Clause
// The accumulate lock of one region. A process of the target's node (or the target's handler) holds it while it
// combines elements that no CPU atomic combines. The holder holds it for microseconds and never waits meanwhile.
//
//   free ----------------> held        by any thread
//   held ----------------> free        no thread has claimed the lock
//   held ----> reserved -> held        only a thread that claims the lock takes a reserved one
//
// A holder that combines in a loop would leave others no chance, least of all a thread of its own core. A thread
// therefore claims the lock when it has waited for kClaimAfter, and a message handler claims it immediately: its origin
// waits for one row. A claim is a flag that its thread sets again and again while it waits, and that the next claimant
// to take the lock clears. After the end of a process that has claimed the lock, others wait for kClaimAfter once. A
// claimant looks now and then whether the process that holds the lock has ended, and takes it then.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <utility>

#include "transport/base/pause.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/node/identity.hpp"

namespace farside {

// In shared memory.
struct AccumulateLockWord {
  enum State : std::uint32_t { kFree, kHeld, kReserved };
  static constexpr std::uint32_t kProcess = 4;    // kHeld + kProcess * the process id of the holder, 0 if unknown
  static inline std::uint32_t held_here = kHeld;  // the state while this process holds a lock
  static constexpr std::uint32_t kClaimsToLook = 256;
  std::atomic<std::uint32_t> state{kFree};
  std::atomic<std::uint32_t> claimed{0};  // how often, since the end of the last claim
  WakeEvent freed;                        // of claimants

  // The acquire follows the release of the last holder, which orders the plain accesses of both.
  bool take_from(std::uint32_t before) {
    return state.compare_exchange_strong(before, held_here, std::memory_order_acquire, std::memory_order_relaxed);
  }
  bool take(bool claims) {
    const std::uint32_t claim = claims ? claimed.load(std::memory_order_relaxed) + 1 : 0;
    if (claims) claimed.store(claim, std::memory_order_relaxed);
    const std::uint32_t before = state.load(std::memory_order_relaxed);
    if (before == kReserved && !claims) return false;
    const bool looks = claims && claim % kClaimsToLook == 0;
    if (before % kProcess == kHeld && !(looks && has_ended(before / kProcess))) return false;
    if (!take_from(before)) return false;
    if (claims) end_claim();
    return true;
  }
  // Others that claim the lock set the flag again when they wake.
  void end_claim() {
    if (claimed.load(std::memory_order_relaxed) != 0) claimed.store(0, std::memory_order_relaxed);
  }
  // Returns whether the lock was taken within `limit`.
  [[gnu::noinline, gnu::cold]] bool wait(bool claims, Clock::duration limit) {
    for (int spins = 0; spins < Timing::kSpins; ++spins) {
      if (take(claims)) return true;
      relax();
    }
    const Clock::time_point begin = Clock::now();
    // There may be more ranks than cores, so the holder may have lost its core.
    for (; !claims; claims = Clock::now() - begin >= Timing::kClaimAfter) {
      sched_yield();
      if (take(false)) return true;
    }
    do {
      const std::uint32_t seen = freed.arm();
      const bool taken = take(true);
      if (!taken) freed.sleep(seen, std::min<Clock::duration>(limit, Timing::kTryAgain));
      freed.disarm();
      if (taken || take(true)) return true;
    } while (Clock::now() - begin < limit);
    return false;
  }
  // A thread that claims the lock and goes to sleep between these loads and the store is not woken. It sleeps for at
  // most kTryAgain. An atomic in place of the store would cost 5 ns per row.
  void release() {
    const std::uint32_t claims = claimed.load(std::memory_order_relaxed);
    const bool waits = (claims | freed.sleepers()) != 0;
    state.store(claims != 0 ? kReserved : kFree, std::memory_order_release);
    if (waits) [[unlikely]]
      freed.wake();
  }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

class AccumulateLock {
 public:
  explicit AccumulateLock(AccumulateLockWord& word) : word_(word) {
    if (!word.take_from(AccumulateLockWord::kFree)) [[unlikely]]
      word.wait(false, Clock::duration::max());
  }
  // For a message handler: claims the lock and waits for it for at most `limit`. The result is in held().
  AccumulateLock(AccumulateLockWord& word, Clock::duration limit) : word_(word) {
    if (word.take_from(AccumulateLockWord::kFree)) {
      word.end_claim();
    } else {
      held_ = word.take(true) || (limit > limit.zero() && word.wait(true, limit));
    }
  }
  AccumulateLock(const AccumulateLock&) = delete;
  AccumulateLock& operator=(const AccumulateLock&) = delete;
  // (It throws only with the atomics of tests/unit/transport/base/memory_model.hpp.)
  ~AccumulateLock() noexcept(noexcept(std::declval<AccumulateLockWord&>().claimed.load(std::memory_order_relaxed))) {
    if (held_) word_.release();
  }

  bool held() const { return held_; }

 private:
  AccumulateLockWord& word_;
  bool held_ = true;
};

}  // namespace farside
