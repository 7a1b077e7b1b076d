// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/threads.hpp"

#include <atomic>
#include <bit>
#include <cstdint>
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
    number = std::countr_one(before);
    if (number >= kOwnSlots) {
      number = kOwnSlots;
      break;
    }
  } while (!taken.compare_exchange_weak(before, before | 1U << number, std::memory_order_acquire,
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

}  // namespace farside
