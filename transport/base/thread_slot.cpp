// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/thread_slot.hpp"

#include <atomic>
#include <bit>
#include <cstdint>

#include "transport/base/per_thread.hpp"

namespace farside {
namespace {

constinit std::atomic<std::uint32_t> taken{0};  // a bit per number

}  // namespace

// Gives the number back when the thread ends.
struct ThreadSlot::Owned {
  int number = kOwnSlots;
  ~Owned() {
    if (number < kOwnSlots) taken.fetch_and(~(1U << number), std::memory_order_release);
    number_ = kOwnSlots;
  }
};

int ThreadSlot::take() {
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
  number_ = PerThread<Owned>::here().number = number;
  return number_;
}

}  // namespace farside
