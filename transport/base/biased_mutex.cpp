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

void BiasedMutex::lock_slow() {
  if (mode_.load(std::memory_order_acquire) == Mode::kBiased) {
    const void* nobody = nullptr;
    const bool can_be_revoked = supports_global_membarrier();
    if (can_be_revoked && owner_.compare_exchange_strong(nobody, this_thread(), std::memory_order_relaxed) &&
        enter_as_owner())
      return;
    revoke();
  }
  wait_for([this] { return mode_.load(std::memory_order_acquire) == Mode::kShared; });
  wait_for([this] {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  });
}

// Executes steps 1 to 4.
void BiasedMutex::revoke() {
  Mode before = Mode::kBiased;
  if (!mode_.compare_exchange_strong(before, Mode::kRevoking, std::memory_order_acq_rel)) return;
  // If the kernel refuses the barrier although it supported it when the owner came, a millisecond has to do: a store
  // leaves a processor's buffer within microseconds.
  if (!global_membarrier() && owner_.load(std::memory_order_relaxed) != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  wait_for([this] { return !inside_.load(std::memory_order_acquire); });
  mode_.store(Mode::kShared, std::memory_order_release);
}

}  // namespace farside
