// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/biased_mutex.hpp"

#include <chrono>
#include <thread>

#include "transport/base/global_membarrier.hpp"

namespace farside {

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
    mode_.wait(Mode::kRevoking, std::memory_order_acquire);
    shared_.lock();
    if (mode_.load(std::memory_order_acquire) == Mode::kShared) break;
    shared_.unlock();
  }
  if (visits_) {
    entries_ = 0;
  } else if (!for_ever_) {
    take_back();
  }
}

// Takes the bias back for the owner, if it is time. Called with `shared_`, in the mode kShared.
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
  shared_.unlock();
}

// Executes steps 1 to 4.
void BiasedMutex::revoke() {
  Mode before = Mode::kBiased;
  if (!mode_.compare_exchange_strong(before, Mode::kRevoking, std::memory_order_acq_rel)) return;
  // If the kernel refuses the barrier although it supported it when the owner came, a millisecond has to do: a store
  // leaves a processor's buffer within microseconds.
  if (!process_membarrier() && owner_.load(std::memory_order_relaxed) != nullptr)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  inside_.wait(true, std::memory_order_acquire);
  mode_.store(Mode::kShared, std::memory_order_release);
  mode_.notify_all();
}

// Executes step f.
void BiasedMutex::wake_revoker() { inside_.notify_one(); }

}  // namespace farside
