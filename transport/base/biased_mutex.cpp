// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/biased_mutex.hpp"

#include <chrono>
#include <thread>

#include "transport/base/global_membarrier.hpp"
#include "transport/base/relax.hpp"

namespace farside {
namespace {

template <class Condition>
void wait_for(Condition&& condition) {
  constexpr int kSpins = 64, kYields = 64;
  for (int tries = 0; !condition(); ++tries) {
    if (tries < kSpins) {
      relax();
    } else if (tries < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

thread_local bool BiasedMutex::visits_ = false;

bool BiasedMutex::may_own(int thread) { return !visits_ && thread < kOwnSlots && supports_process_membarrier(); }

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
    wait_for([this] { return state_.load(std::memory_order_acquire) != kRevoking; });
    wait_for([this] {
      return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
    });
    if (state_.load(std::memory_order_acquire) == kShared) break;
    locked_.store(false, std::memory_order_release);
  }
  if (last_ != thread) entries_ = 0;
  last_ = static_cast<std::uint8_t>(thread);
  if (++entries_ >= kInARow && may_own(thread)) take(thread);
}

// Gives the calling thread the bias. It has `locked_`, in the state kShared.
void BiasedMutex::take(int thread) {
  entries_ = 0;
  inside_[static_cast<std::size_t>(thread)].store(true, std::memory_order_relaxed);
  state_.store(static_cast<std::uint8_t>(thread), std::memory_order_release);
  locked_.store(false, std::memory_order_release);
}

// Executes steps 1 to 4.
void BiasedMutex::revoke(std::uint8_t owner) {
  std::uint8_t before = owner;
  if (!state_.compare_exchange_strong(before, kRevoking, std::memory_order_acq_rel)) return;
  // If the kernel refuses the barrier although it supported it when the owner came, a millisecond has to do: a store
  // leaves a processor's buffer within microseconds.
  if (!process_membarrier()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  wait_for([this, owner] { return !inside_[owner].load(std::memory_order_acquire); });
  state_.store(kShared, std::memory_order_release);
}

}  // namespace farside
