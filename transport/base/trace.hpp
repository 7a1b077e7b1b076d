// SPDX-License-Identifier: BSD-3-Clause
// The recorder for FARSIDE_TRACE: ring buffers of the records of one process. A full ring overwrites its oldest records
// and counts them. Epochs, operations and the work of the progress thread have a ring each, so that many records of one
// kind do not overwrite those of another.
//
// Thread safety: any for add() after expect_threads(); take() and lost() any. Memory: at most 4, 2 and 1 MiB; none
// without a trace.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

#include "transport/base/relaxed_flag.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/trace_format.hpp"

namespace farside {

class TraceRing {
 public:
  // `capacity`: a power of two.
  explicit TraceRing(std::size_t capacity, bool threaded = false)
      : mask_(capacity - 1),
        threaded_(threaded),
        records_(static_cast<Word*>(::operator new(capacity * sizeof(TraceRecord)))) {}

  // From now on several threads may record at once.
  void expect_threads() { threaded_ = true; }
  void add(const TraceRecord& record) {
    if (threaded_) [[unlikely]] {
      const std::scoped_lock held(mutex_);
      put(record);
    } else {
      put(record);
    }
  }
  std::uint64_t lost() const {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    return next > mask_ + 1 ? next - mask_ - 1 : 0;
  }
  // Returns the records, the oldest first, but for those that are overwritten meanwhile.
  std::vector<TraceRecord> take() const;

 private:
  // A record may be overwritten while it is read, so its words are atomic.
  using Word = std::uint64_t;
  using Words = std::array<Word, sizeof(TraceRecord) / sizeof(Word)>;
  struct Free {
    void operator()(Word* records) const { ::operator delete(records); }
  };
  Word* place(std::uint64_t number) const { return records_.get() + (number & mask_) * std::tuple_size_v<Words>; }
  // What take() reads below `next_` is complete, and it sees `begun_` of each record of which it has read something.
  void put(const TraceRecord& record) {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    begun_.store(next + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    Word* to = place(next);
    for (const Word word : std::bit_cast<Words>(record)) std::atomic_ref(*to++).store(word, std::memory_order_relaxed);
    next_.store(next + 1, std::memory_order_release);
  }

  std::size_t mask_;
  RelaxedFlag threaded_;
  std::unique_ptr<Word, Free> records_;  // not initialized, so that only touched pages take memory
  std::atomic<std::uint64_t> next_{0};   // the number of complete records
  std::atomic<std::uint64_t> begun_{0};  // one more while a record is being written
  std::mutex mutex_;  // of add(), if there are threads
};

class Trace {
 public:
  Trace() : first_(ClockPair::read()) {}

  // Returns the trace of this process; null: nothing is recorded.
  static Trace* active() { return active_.load(std::memory_order_acquire); }
  // Creates the trace. To be called by one thread.
  static void activate() {
    if (active() == nullptr) active_.store(new Trace(), std::memory_order_release);
  }

  TraceRing& epochs() { return epochs_; }
  TraceRing& operations() { return operations_; }
  TraceRing& served() { return served_; }
  const ClockPair& first() const { return first_; }

 private:
  static inline std::atomic<Trace*> active_{nullptr};  // never destroyed: threads may still record

  TraceRing epochs_{std::size_t{1} << 16};
  TraceRing operations_{std::size_t{1} << 15};
  TraceRing served_{std::size_t{1} << 14, true};
  ClockPair first_;
};

// Records its own life as the execution of a request of another process.
class TraceServed {
 public:
  // `route`: the route of the request.
  TraceServed(RouteKind route, std::uint64_t bytes)
      : route_(route), bytes_(bytes), begin_(Trace::active() != nullptr ? ticks() : 0) {}
  TraceServed(const TraceServed&) = delete;
  TraceServed& operator=(const TraceServed&) = delete;
  ~TraceServed() {
    if (begin_ != 0) [[unlikely]] add();
  }

 private:
  void add() const;
  RouteKind route_;
  std::uint64_t bytes_;
  Ticks begin_;
};

}  // namespace farside
