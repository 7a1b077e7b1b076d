// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/threads.hpp"

#include <algorithm>
#include <bit>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farside {

// Gives the number back when the thread ends.
struct ThreadSlot::Owned {
  int number = kOwnSlots;
  ~Owned() {
    if (number < kOwnSlots) this_process.thread_slots.fetch_and(~(1U << number), std::memory_order_release);
    this_thread.slot = kOwnSlots;
  }
};

int ThreadSlot::take() {
  std::atomic<std::uint32_t>& taken = this_process.thread_slots;
  std::uint32_t before = taken.load(std::memory_order_relaxed);
  int number = kOwnSlots;
  do {
    number = std::min(std::countr_one(before), kOwnSlots);
  } while (number < kOwnSlots && !taken.compare_exchange_weak(before, before | 1U << number, std::memory_order_acquire,
                                                              std::memory_order_relaxed));
  return this_thread.slot = PerThread<Owned>::here().number = number;
}

void add_thread_object(ThreadObject& object) {
  static const pthread_key_t key = [] {
    const auto destroy_all = [](void*) {
      while (ThreadObject* const last = this_thread.objects) {
        this_thread.objects = last->next;
        last->destroy(last);
      }
    };
    pthread_key_t made{};
    return ::pthread_key_create(&made, destroy_all) == 0 ? made : ~pthread_key_t{};
  }();
  object.next = this_thread.objects;
  this_thread.objects = &object;
  (void)::pthread_setspecific(key, &object);
}

namespace {

bool call(int command) { return syscall(SYS_membarrier, command, 0U, 0) == 0; }

[[maybe_unused]] const bool asked_when_loaded =
    call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);

}  // namespace

// Registers again, for a process that was forked since. If the process is registered, the kernel returns at once.
bool supports_global_membarrier() { return call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); }

bool supports_process_membarrier() { return call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

bool process_membarrier() { return call(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

bool global_membarrier() { return call(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

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
  if (++entries_ < Timing::kInARow || !may_own(thread)) return;
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
