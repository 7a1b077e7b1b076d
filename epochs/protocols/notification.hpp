// SPDX-License-Identifier: BSD-3-Clause
// A notification counter of a target, of notified access (pmpi/window/notifications.hpp). Each notified operation of an
// origin adds 1 to the counter's word in the target's control block, behind the data. Only origins change the word, in
// either atomicity domain: the target keeps in its own memory up to where it has reset the counter. Thread safety: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside::epochs {

class NotificationCounter {
 public:
  // Notified operations since the last reset(), whose data are visible now. `taken_` is read first: the word is never
  // behind it.
  template <class M>
  std::uint64_t value(const M& memory, std::uint32_t word) const {
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    return memory.own(word) - taken;
  }
  // Sets the counter to 0 and returns its former value, in one step.
  template <class M>
  std::uint64_t reset(const M& memory, std::uint32_t word) {
    std::uint64_t taken = taken_.load(std::memory_order_acquire), now = 0;
    do {
      now = memory.own(word);
    } while (!taken_.compare_exchange_weak(taken, now, std::memory_order_acq_rel));
    return now - taken;
  }

 private:
  std::atomic<std::uint64_t> taken_{0};
};

}  // namespace farside::epochs
