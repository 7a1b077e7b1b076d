// SPDX-License-Identifier: BSD-3-Clause
// A control word that is mapped: how ranks on a node read and change it, and in which order.
// tests/transport/memory_order_test.cpp runs these functions under the memory model of C++, so what they promise does
// not depend on the processor.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

struct ControlWord {
  // Changes and remote reads are sequentially consistent: locks and notifications publish the data that they protect,
  // the wake event asks for it (base/wake_event.hpp), and of two ranks that each change one word and then read the
  // other's one sees the other (epochs/protocols/exposure.hpp). On x86-64 acquire and release cost the same.
  static std::uint64_t fetch_add(std::uint64_t& word, std::uint64_t value) {
    return std::atomic_ref(word).fetch_add(value, std::memory_order_seq_cst);
  }
  // What the word held before.
  static std::uint64_t compare_and_swap(std::uint64_t& word, std::uint64_t expected, std::uint64_t desired) {
    std::atomic_ref(word).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
    return expected;
  }
  static std::uint64_t read(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_seq_cst); }
  static void write(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_seq_cst);
  }
  // The owner's look at a word of its own: sees the data behind what others have written there. It does not order
  // earlier changes of other words before it; the wake event does that for who is about to sleep.
  static std::uint64_t look(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
};

}  // namespace farside
