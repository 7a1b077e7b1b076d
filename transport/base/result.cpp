// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/result.hpp"

#include <atomic>
#include <new>
#include <thread>

#include "transport/base/state.hpp"
#include "transport/base/timing.hpp"

namespace farside {

namespace {

constinit std::atomic<std::new_handler> of_program{nullptr};

}  // namespace

PatientAllocation::PatientAllocation() : before_(this_thread.tries_left) {
  if (std::get_new_handler() != on_no_memory) {
    // Another thread may do the same.
    const std::new_handler before = std::set_new_handler(on_no_memory);
    if (before != on_no_memory) of_program.store(before, std::memory_order_relaxed);
  }
  this_thread.tries_left = Timing::kTriesForMemory;
}

PatientAllocation::~PatientAllocation() { this_thread.tries_left = before_; }

// Returns if the allocation is to be tried again.
void PatientAllocation::on_no_memory() {
  if (this_thread.tries_left > 0) {
    --this_thread.tries_left;
    return std::this_thread::sleep_for(Timing::kTryAgain);
  }
  const std::new_handler next = of_program.load(std::memory_order_relaxed);
  if (next == nullptr) throw std::bad_alloc();
  next();
}

}  // namespace farside
