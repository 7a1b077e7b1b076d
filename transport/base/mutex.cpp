// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/mutex.hpp"

#include <chrono>
#include <thread>

#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"

namespace farside {

bool BiasedMutex::may_own(int thread) {
  return !this_thread.never_owns && thread < kOwnSlots && supports_process_membarrier();
}

void BiasedMutex::lock_slow() {
  const int thread = ThreadSlot::get();
  while (true) {
    std::uint8_t state = state_.load(std::memory_order_acquire);
    if (state == kNew) {
      const auto first = may_own(thread) ? static_cast<std::uint8_t>(thread) : kShared;
      state_.compare_exchange_strong(state, first, std::memory_order_relaxed);
      if (enter_as_owner(thread)) return;
      continue;
    }
    if (state < kOwnSlots) revoke(state);
    state_.wait(kRevoking, std::memory_order_acquire);
    shared_.lock();
    if (state_.load(std::memory_order_acquire) == kShared) break;
    shared_.unlock();
  }
  if (last_ != thread) entries_ = 0;
  last_ = static_cast<std::uint8_t>(thread);
  if (++entries_ >= Timing::kInARow && may_own(thread)) take(thread);
}

// Gives the calling thread the bias. It has `shared_`, in the state kShared.
void BiasedMutex::take(int thread) {
  entries_ = 0;
  inside_[static_cast<std::size_t>(thread)].store(true, std::memory_order_relaxed);
  state_.store(static_cast<std::uint8_t>(thread), std::memory_order_release);
  shared_.unlock();
}

// Executes steps 1 to 4.
void BiasedMutex::revoke(std::uint8_t owner) {
  std::uint8_t before = owner;
  if (!state_.compare_exchange_strong(before, kRevoking, std::memory_order_acq_rel)) return;
  // If the kernel refuses the barrier although it supported it when the owner came, a millisecond has to do: a store
  // leaves a processor's buffer within microseconds.
  if (!process_membarrier()) std::this_thread::sleep_for(Timing::kTryAgain);
  inside_[owner].wait(true, std::memory_order_acquire);
  state_.store(kShared, std::memory_order_release);
  state_.notify_all();
}

// Executes step f.
void BiasedMutex::wake_revoker(int thread) { inside_[static_cast<std::size_t>(thread)].notify_one(); }

}  // namespace farside
