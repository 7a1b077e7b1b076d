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

void BiasedMutex::lock_slow() {
  while (true) {
    if (mode_.load(std::memory_order_acquire) == Mode::kBiased) {
      const void* nobody = nullptr;
      if (!visits_ && supports_process_membarrier() &&
          owner_.compare_exchange_strong(nobody, this_thread(), std::memory_order_relaxed) && enter_as_owner())
        return;
      revoke();
    }
    wait_for([this] { return mode_.load(std::memory_order_acquire) != Mode::kRevoking; });
    wait_for([this] {
      return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
    });
    if (mode_.load(std::memory_order_acquire) == Mode::kShared) break;
    locked_.store(false, std::memory_order_release);
  }
  if (visits_) {
    entries_ = 0;
  } else if (!for_ever_) {
    take_back();
  }
}

// Takes the bias back for the owner, if it is time. Called with `locked_`, in the mode kShared.
void BiasedMutex::take_back() {
  // If a visit came first, nobody is the owner yet.
  const void* nobody = nullptr;
  if (owner_.load(std::memory_order_relaxed) == nullptr && supports_process_membarrier())
    owner_.compare_exchange_strong(nobody, this_thread(), std::memory_order_relaxed);
  for_ever_ = owner_.load(std::memory_order_relaxed) != this_thread();
  if (for_ever_ || ++entries_ < kBackAfter) return;
  entries_ = 0;
  inside_.store(true, std::memory_order_relaxed);
  mode_.store(Mode::kBiased, std::memory_order_release);
  locked_.store(false, std::memory_order_release);
}

// Executes steps 1 to 4.
void BiasedMutex::revoke() {
  Mode before = Mode::kBiased;
  if (!mode_.compare_exchange_strong(before, Mode::kRevoking, std::memory_order_acq_rel)) return;
  // If the kernel refuses the barrier although it supported it when the owner came, a millisecond has to do: a store
  // leaves a processor's buffer within microseconds.
  if (!process_membarrier() && owner_.load(std::memory_order_relaxed) != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  wait_for([this] { return !inside_.load(std::memory_order_acquire); });
  mode_.store(Mode::kShared, std::memory_order_release);
}

}  // namespace farside
