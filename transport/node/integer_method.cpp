// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/integer_method.hpp"

#include "transport/base/threads.hpp"

namespace farside {

void IntegerMethod::allow_lock(const IntegerWordsOfNode& all, bool threaded) {
  all_ = all;
  threaded_ = threaded;
  // The message handler reads all_ after long_row_.
  long_row_.store(kLongRow, std::memory_order_release);
}

// Executes steps 1 to 4 (see the header).
IntegerPhase IntegerMethod::change() {
  if (own_->by_slot[kOwnSlots].by.load(std::memory_order_acquire) == IntegerPhase::kLock) {
    remember();
    return IntegerPhase::kLock;
  }
  if (!all_know_.load(std::memory_order_acquire)) {
    for (std::size_t rank = 0; rank < all_.ranks; ++rank) {
      for (IntegerWords::OfThread& each : all_.of(rank).by_slot) {
        IntegerPhase before = IntegerPhase::kAtomics;
        each.by.compare_exchange_strong(before, IntegerPhase::kBoth, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
      }
    }
    // Needed even if another thread has done step 1: it may not have executed its barrier yet.
    if (!global_membarrier()) return IntegerPhase::kBoth;
    all_know_.store(true, std::memory_order_release);
  }
  for (std::size_t rank = 0; rank < all_.ranks; ++rank) {
    for (const IntegerWords::OfThread& each : all_.of(rank).by_slot) {
      if (each.announced.load(std::memory_order_acquire) != 0) return IntegerPhase::kBoth;
    }
  }
  for (std::size_t rank = 0; rank < all_.ranks; ++rank) {
    for (IntegerWords::OfThread& each : all_.of(rank).by_slot)
      each.by.store(IntegerPhase::kLock, std::memory_order_release);
  }
  remember();
  return IntegerPhase::kLock;
}

}  // namespace farside
