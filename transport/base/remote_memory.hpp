// SPDX-License-Identifier: BSD-3-Clause
// RemoteMemory: the interface of protocols (epochs/) to the control words of a group of ranks. A word has 64 bits. It
// is identified by a rank and a byte offset in that rank's control block. Issuing an operation waits for no other
// process. The operation takes effect at the target later, and is done after that. Protocols consist of resumable steps
// over this concept, so the same code runs over the routes (control_memory.hpp), in an explorer of interleavings and in
// a simulator.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace farside {

// Whether a step on a word ends this rank's access to the data of that rank. If so, the step carries the operations on
// these data that the memory keeps, and takes effect behind them. Other steps leave these operations alone: they may
// belong to the access epoch of another thread, which completes them itself.
enum class DataAccess : bool { kGoesOn, kEnds };

inline constexpr std::size_t kMostWordsRead = 8;

template <class M>
concept RemoteMemory = requires(M memory, const M& const_memory, typename M::Operation operation, int rank,
                                std::uint32_t word, std::uint64_t value, DataAccess access,
                                std::span<std::uint64_t> values) {
  // One atomic step on the word; value() is the former value of the word.
  memory.fetch_add(operation, rank, word, value, access);
  memory.fetch_add(operation, rank, word, value);  // the access goes on
  memory.compare_and_swap(operation, rank, word, value, value);
  // value() is the value of the word.
  memory.read(operation, rank, word);
  // Reads consecutive words, at most kMostWordsRead of them, each at some time of its own. `values` has their values
  // when the operation is done.
  memory.read(operation, rank, word, values);
  // An addition to a word, or a write of it, that no protocol awaits: behind the earlier ones of this rank to the same
  // rank, and before operations that it issues later. The memory keeps its error. A write must not be concurrent with
  // an atomic step of another rank on the same word, even if the step is a compare-and-swap that fails: an adapter may
  // store back the value that it has read, over the written one (IBTA 9.4.5: atomic among atomics only).
  memory.add_unawaited(rank, word, value);
  memory.write_unawaited(rank, word, value);
  // No remote operation. It is done after `value` times the duration of a hand-off of a contended lock. The memory
  // estimates this duration (at first a few round trips) and may adapt the estimate. For waiters that probe rarely.
  memory.pause(operation, value);
  // Lets the memory adapt: a pause for the first number of hand-offs ended when the second number had taken place.
  memory.learn_hand_off_time(value, value);
  // True when the operation has taken effect. Only then value() may be called, or the operation be used again.
  { operation.done() } -> std::convertible_to<bool>;
  { operation.value() } -> std::convertible_to<std::uint64_t>;
  // Access to this rank's own words; atomic with respect to operations of peers.
  { const_memory.own(word) } -> std::convertible_to<std::uint64_t>;
  { memory.own_fetch_add(word, value) } -> std::convertible_to<std::uint64_t>;
};

// Notifications: an addition to a word, or a write of it, whose effect the caller does not await. The operation is done
// when it may be used again, has no value, and may take effect later: behind the earlier notifications of this rank to
// the same rank, and before operations that it issues later. failed() may become true afterwards, if the notification
// may have been lost. A protocol that waits for one of another rank asks interrupted_since(): whether notifications of
// that rank may have been lost since the memory had counted so many interruptions. What has arrived before is visible
// then.
template <class M>
concept NotifyingMemory = RemoteMemory<M> && requires(M memory, typename M::Operation operation, int rank,
                                                      std::uint32_t word, std::uint64_t value, DataAccess access) {
  memory.notify_add(operation, rank, word, value, access);
  memory.notify_write(operation, rank, word, value, access);
  { operation.failed() } -> std::convertible_to<bool>;
  { memory.interrupted_since(rank, std::uint32_t{}) } -> std::convertible_to<bool>;
};

// The accesses of a node's ranks to a mapped control word, and their memory orders.
// tests/unit/transport/base/memory_order_test.cpp runs these functions under the memory model of C++, so their
// guarantees do not depend on the processor.
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
  // Precedes a change. A processor with strong order begins to move the line of the word to this core only when the
  // data behind which the word is changed have moved; now both move at once.
  static void prefetch([[maybe_unused]] const std::uint64_t& word) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(word));
#endif
  }
  // The owner's read of its own word. The acquire makes the data visible that a peer published by the word. The read is
  // not ordered after the owner's earlier changes of other words; before a sleep, the wake event orders them.
  static std::uint64_t look(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
};

}  // namespace farside
