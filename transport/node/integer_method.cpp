// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/integer_method.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/global_membarrier.hpp"

namespace farside {

void IntegerMethod::start(std::vector<IntegerWords*> all, int rank, bool threaded) {
  own_ = all[static_cast<std::size_t>(rank)];
  all_ = std::move(all);
  long_row_.store(kLongRow, std::memory_order_relaxed);
  threaded_ = threaded;
}

// Executes steps 1 to 4 (see the header).
IntegerPhase IntegerMethod::change() {
  if (own_->by_slot[own_slot()].by.load(std::memory_order_acquire) == IntegerPhase::kLock) {
    remember();
    return IntegerPhase::kLock;
  }
  if (!all_know_.load(std::memory_order_acquire)) {
    for (IntegerWords* rank : all_) {
      for (IntegerWords::OfThread& each : rank->by_slot) {
        IntegerPhase before = IntegerPhase::kAtomics;
        each.by.compare_exchange_strong(before, IntegerPhase::kBoth, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
      }
    }
    // Needed even if another thread has done step 1: it may not have executed its barrier yet.
    if (!global_membarrier()) return IntegerPhase::kBoth;
    all_know_.store(true, std::memory_order_release);
  }
  const auto idle = [](const IntegerWords* rank) {
    return std::ranges::all_of(rank->by_slot, [](const IntegerWords::OfThread& each) {
      return each.announced.load(std::memory_order_acquire) == 0;
    });
  };
  if (!std::ranges::all_of(all_, idle)) return IntegerPhase::kBoth;
  for (IntegerWords* rank : all_) {
    for (IntegerWords::OfThread& each : rank->by_slot) each.by.store(IntegerPhase::kLock, std::memory_order_release);
  }
  remember();
  return IntegerPhase::kLock;
}

}  // namespace farside
