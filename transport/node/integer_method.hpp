// SPDX-License-Identifier: BSD-3-Clause
// The method by which the ranks of a node combine integers in shared memory, and by which their message handlers do so
// for ranks of other nodes. A counter needs a CPU atomic, which waits for no other process. A long row needs plain
// loops under the accumulate lock, which take a 20th of the time. The two methods cannot be used on one location at the
// same time. So a space begins with atomics, and its first long row on a node changes all ranks of this node to the
// lock, for the rest of the space's life:
//
//   kAtomics   each element is one CPU atomic, without the lock. The rank announces its atomics while it executes them.
//   kBoth      each element is one CPU atomic, under the lock. Ranks in kBoth may meet ranks in kAtomics, because both
//              use atomics, and ranks in kLock, because both hold the lock.
//   kLock      plain loops under the lock.
//
// Each thread of a rank has two words in shared memory, which its operations access; those beyond kOwnSlots threads and
// the message handler share the last ones:
//
//   | announced: threads with these words that execute atomics    | by: the phase of these threads |
//   0                                                             4                                8
//
//   an operation            the thread that changes the phase
//   a. announced = 1        1. by = kBoth, at each thread that has kAtomics
//   b. read by              2. global_membarrier()
//   c. kAtomics: atomics    3. read announced of each thread; if one is not 0, stop: the next long row continues here
//   d. announced = 0        4. by = kLock, at each thread
//
// Why no atomic without the lock meets a plain loop: the thread of the loop has read kLock, whose writer has found
// every `announced` 0 (step 3), after a barrier (step 2) that followed step 1. If an operation's read (b) followed the
// barrier on its processor, it read at least kBoth. If it preceded the barrier, so did the announcement (a): step 3
// read the 0 of the operation's end (d), and the loop sees the operation's atomics, since d releases, step 3 acquires,
// step 4 releases, and the read of kLock acquires. Without the barrier, a processor may execute b before its store of a
// is visible. `by` only grows. No thread waits for another: if a rank is killed or stopped while it executes atomics,
// the space stays in kBoth. tests/unit/transport/node/integer_method_test.cpp tries all interleavings of a model of
// this, with and without its parts.
//
// Thread safety: any for begin() and end(), if allow_lock() has `threaded` or after expect_threads(), and always for
// those in common, also while allow_lock() runs. Cost: two stores and a load in the thread's own
// cache line (in common and beyond kOwnSlots threads two atomics). A change of the phase writes the words of all
// threads. Memory: 512 shared bytes per rank.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/base/atomics.hpp"
#include "transport/base/threads.hpp"

namespace farside {

enum class IntegerPhase : std::uint32_t { kAtomics, kBoth, kLock };

// Of one rank, in shared memory. Each thread's words have their own cache line, as its operations write to it.
struct IntegerWords {
  struct alignas(64) OfThread {
    std::atomic<std::uint32_t> announced{0};
    std::atomic<IntegerPhase> by{IntegerPhase::kAtomics};
  };
  std::array<OfThread, kOwnSlots + 1> by_slot;  // by ThreadSlot
};
static_assert(std::atomic<IntegerPhase>::is_always_lock_free && sizeof(IntegerWords) == 512);

// The words of all ranks of a node, `stride` bytes apart.
struct IntegerWordsOfNode {
  std::byte* first = nullptr;
  std::size_t stride = 0;
  std::size_t ranks = 0;

  IntegerWords& of(std::size_t index) const { return *reinterpret_cast<IntegerWords*>(first + index * stride); }
};

class IntegerMethod {
 public:
  // In elements. An atomic takes 6 ns; the lock takes 15 ns, and a flush after it a few more.
  static constexpr std::size_t kLongRow = 8;

  // kAtomics for ever, until allow_lock().
  IntegerMethod() = default;

  // The words of this rank. Called before any operation.
  void announce_in(IntegerWords& own) { own_ = &own; }
  // From now on a long row changes the method. `all`: the words of all ranks of the node, with the own ones. All these
  // processes must call this function, and take part in global_membarrier(). `threaded`: several threads of this
  // process may execute operations at once.
  void allow_lock(const IntegerWordsOfNode& all, bool threaded) {
    all_ = all;
    threaded_ = threaded;
    // The message handler reads all_ after long_row_.
    long_row_.store(kLongRow, std::memory_order_release);
  }
  // From now on several threads may execute operations at once. Precondition: no thread executes one now.
  void expect_threads() { threaded_ = true; }

  // To be called before an operation on `elements` elements. Returns the phase that the operation must use.
  // `in_common`: an operation of the message handler, which any thread may execute.
  [[gnu::always_inline]] IntegerPhase begin(std::size_t elements, bool in_common = false) {
    if (elements >= long_row_.load(std::memory_order_acquire)) [[unlikely]] {
      return over_.load(std::memory_order_acquire) ? IntegerPhase::kLock : change();
    }
    const std::size_t slot = in_common ? kOwnSlots : own_slot();
    IntegerWords::OfThread& own = own_->by_slot[slot];
    if (slot == kOwnSlots) [[unlikely]] {
      own.announced.fetch_add(1, std::memory_order_seq_cst);
    } else {
      own.announced.store(1, std::memory_order_relaxed);
    }
    // A barrier for the compiler only. Step 2 makes the barrier on this processor.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const IntegerPhase by = own.by.load(std::memory_order_acquire);
    if (by != IntegerPhase::kAtomics) [[unlikely]] {
      end_in(slot);
      if (by == IntegerPhase::kLock) remember();
    }
    return by;
  }
  // To be called after the operation. `begun`: the result of begin().
  void end(IntegerPhase begun, bool in_common = false) {
    if (begun == IntegerPhase::kAtomics) end_in(in_common ? kOwnSlots : own_slot());
  }
  // Whether an operation in common would need the lock now. Another thread may change the phase before it begins.
  bool locks_in_common(std::size_t elements) const {
    return elements >= long_row_.load(std::memory_order_relaxed) ||
           own_->by_slot[kOwnSlots].by.load(std::memory_order_relaxed) != IntegerPhase::kAtomics;
  }

 private:
  std::size_t own_slot() const { return threaded_ ? static_cast<std::size_t>(ThreadSlot::get()) : 0; }
  [[gnu::always_inline]] void end_in(std::size_t slot) {
    IntegerWords::OfThread& own = own_->by_slot[slot];
    if (slot == kOwnSlots) [[unlikely]] {
      own.announced.fetch_sub(1, std::memory_order_release);
    } else {
      own.announced.store(0, std::memory_order_release);
    }
  }
  // Executes steps 1 to 4.
  [[gnu::noinline, gnu::cold]] IntegerPhase change() {
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
  // Notes that this rank has read kLock. Its operations announce nothing from then on.
  void remember() {
    over_.store(true, std::memory_order_release);
    long_row_.store(0, std::memory_order_relaxed);
  }

  static inline constinit IntegerWords of_no_space_;  // of methods without announce_in(): `by` stays kAtomics
  IntegerWords* own_ = &of_no_space_;
  std::atomic<std::size_t> long_row_{SIZE_MAX};  // elements; 0: every operation reads over_
  std::atomic<bool> over_{false};                // kLock was read
  RelaxedFlag threaded_;
  // Steps 1 and 2 are complete in this process.
  std::atomic<bool> all_know_{false};
  IntegerWordsOfNode all_;
};

}  // namespace farside
