// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a space that all share memory combine integers. A counter wants a CPU atomic, which waits for
// nobody; a long row wants the accumulate lock and plain loops, at a 20th of the time. Both cannot hold for one
// location, so a space begins with atomics and changes, once and for all, at its first long row:
//
//   kAtomics   each element is one CPU atomic, without the lock. Whoever does some announces it meanwhile.
//   kBoth      each element is one CPU atomic, and under the lock: right beside those who still do the one and those
//              who already do the other.
//   kLock      plain loops under the lock.
//
// Each rank has words of its own in shared memory, which alone it looks at:
//
//   | announced: threads of this rank in the midst of atomics | by: one of the three above |
//   0                                                         4                            8
//
//   an operation            whoever changes
//   a. announced = 1        1. by = kBoth, at each rank that has kAtomics
//   b. look at by           2. global_membarrier()
//   c. kAtomics: atomics    3. look at announced of each rank; if one is not 0, leave it at that: the next long row
//                           looks again
//   d. announced = 0        4. by = kLock, at each rank
//
// Why no atomic without the lock meets a plain loop: a plain loop means that its rank read kLock, so that somebody has
// found every `announced` 0 after a barrier of its own that came after step 1. Take an operation of another rank. If
// its look (b) came after the barrier on its processor, it read kBoth at least, and did no atomics without the lock. If
// it came before, then so did its announcement (a), which step 3 therefore sees, or the 0 of its end (d); and an end
// that is seen is one whose atomics are seen (d releases, 3 acquires, 4 releases, the plain loop's look acquires).
// Without the barrier, a and b could change places on a processor, as stores wait there. `by` only grows. Nobody waits
// for anybody: a rank that is killed, or stopped, in the midst of atomics leaves the space at kBoth.
// tests/transport/integer_method_test.cpp tries all orders of a model of this, with and without its parts.
//
// Ranks that read kBoth and ranks that read kLock exclude each other by the lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/relaxed_flag.hpp"

namespace farside {

enum class IntegerPhase : std::uint32_t { kAtomics, kBoth, kLock };

// In shared memory, on a cache line of its own: it is written at each operation of its rank.
struct alignas(64) IntegerWords {
  std::atomic<std::uint32_t> announced{0};
  std::atomic<IntegerPhase> by{IntegerPhase::kAtomics};
};
static_assert(std::atomic<IntegerPhase>::is_always_lock_free && sizeof(IntegerWords) == 64);

class IntegerMethod {
 public:
  // An atomic takes 6 ns, the lock 15 and a flush after it a few more.
  static constexpr std::size_t kLongRow = 8;

  // Until start(): kAtomics, for ever.
  IntegerMethod() = default;
  IntegerMethod(const IntegerMethod&) = delete;
  IntegerMethod& operator=(const IntegerMethod&) = delete;

  // `all`: of all ranks of the space, this one's at `rank`, which all take part in global_membarrier(). `threaded`:
  // several threads of this process may be in operations at once.
  void start(std::vector<IntegerWords*> all, int rank, bool threaded);
  // From now on several threads may be; none is in an operation now.
  void expect_threads() { threaded_ = true; }

  // Before an operation on so many elements, and after it.
  IntegerPhase begin(std::size_t elements) {
    if (elements >= long_row_.load(std::memory_order_relaxed)) [[unlikely]] {
      return over_.load(std::memory_order_acquire) ? IntegerPhase::kLock : change();
    }
    if (threaded_) {
      own_->announced.fetch_add(1, std::memory_order_seq_cst);
    } else {
      own_->announced.store(1, std::memory_order_relaxed);
    }
    // A barrier for the compiler only; the processor's is made by whoever changes.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const IntegerPhase by = own_->by.load(std::memory_order_acquire);
    if (by != IntegerPhase::kAtomics) [[unlikely]] {
      end(IntegerPhase::kAtomics);
      if (by == IntegerPhase::kLock) remember();
    }
    return by;
  }
  // `begun`: what begin() has returned.
  void end(IntegerPhase begun) {
    if (begun != IntegerPhase::kAtomics) return;
    if (threaded_) {
      own_->announced.fetch_sub(1, std::memory_order_release);
    } else {
      own_->announced.store(0, std::memory_order_release);
    }
  }

 private:
  IntegerPhase change();
  // The change is over: nothing is announced any more.
  void remember() {
    over_.store(true, std::memory_order_release);
    long_row_.store(0, std::memory_order_relaxed);
  }

  IntegerWords nobodys_;
  IntegerWords* own_ = &nobodys_;
  std::atomic<std::size_t> long_row_{SIZE_MAX};  // 0: look at over_
  std::atomic<bool> over_{false};                // kLock was read
  RelaxedFlag threaded_;
  // All have kBoth at least since before a barrier of this process.
  std::atomic<bool> all_know_{false};
  std::vector<IntegerWords*> all_;
};

}  // namespace farside
