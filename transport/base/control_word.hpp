// SPDX-License-Identifier: BSD-3-Clause
// The accesses of a node's ranks to a mapped control word, and their memory orders.
// tests/transport/memory_order_test.cpp runs these functions under the memory model of C++, so their guarantees do not
// depend on the processor.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

struct ControlWord {
  // Changes and remote reads are sequentially consistent, for three reasons. Locks and notifications publish the data
  // that they protect. The wake event requires it (base/wake_event.hpp). If two ranks each change a word and then read
  // the word of the other rank, at least one of them must see the other's change (epochs/protocols/exposure.hpp). On
  // x86-64 acquire and release would cost the same.
  static std::uint64_t fetch_add(std::uint64_t& word, std::uint64_t value) {
    return std::atomic_ref(word).fetch_add(value, std::memory_order_seq_cst);
  }
  // Returns the former value.
  static std::uint64_t compare_and_swap(std::uint64_t& word, std::uint64_t expected, std::uint64_t desired) {
    std::atomic_ref(word).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
    return expected;
  }
  static std::uint64_t read(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_seq_cst); }
  static void write(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_seq_cst);
  }
  // The owner's read of its own word. The acquire makes the data visible that a peer published by the word. The read is
  // not ordered after the owner's earlier changes of other words; before a sleep, the wake event orders them.
  static std::uint64_t look(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
};

}  // namespace farside
