// SPDX-License-Identifier: BSD-3-Clause
// The counts of this process's operations by route, for FARSIDE_STATS. pmpi/ writes them to a file. Thread safety: any.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "transport/base/address.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"

namespace farside {

// kNotified: notifications of operations, which count as well. kControl: operations of protocols on control words
// (locks, notifications, barriers). kHandler: requests that the handler of this process executed. kNicAtomic: atomics
// on data or control words that an adapter executed. kFromRuntime: successful polls of threads that waited in the MPI
// runtime. kNearHandOff: locks of ranks of other nodes that a rank of this node has handed to this process
// (epochs/protocols/near_lock.hpp).
enum class Counted : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,
  kFetch,
  kCompareAndSwap,
  kNotified,
  kControl,
  kHandler,
  kNicAtomic,
  kFromRuntime,
  kNearHandOff
};
inline constexpr std::array<const char*, 11> kCountedNames = {
    "put",     "get",     "accumulate", "get_accumulate", "compare_and_swap", "notified",
    "control", "handler", "nic_atomic", "from_runtime",   "near_hand_off"};

// The reasons for the slow path of an accumulate (data/accumulates.md). kType: elements of 1 or 2 bytes, or wider than
// the CPU's atomics. kUnaligned: no natural alignment. kFloatingPoint: floating-point, complex and pair types. kCma:
// the space has a target on the route cma. kProvider: the adapter has no such atomic, or an element at the target
// crosses from one attached region into the next.
enum class SlowAccumulate : std::uint8_t { kType, kUnaligned, kFloatingPoint, kCma, kProvider };
inline constexpr std::array<const char*, 5> kSlowNames = {"type", "unaligned", "floating_point", "cma", "provider"};

class Statistics {
 public:
  struct Counter {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  void enable() { enabled_.store(true, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Relaxed: the finalizing thread reads the counts after the work.
  void add(RouteKind route, Counted what, std::size_t bytes, std::uint64_t count = 1) {
    if (!enabled()) [[likely]]
      return;
    Counter& counter = counters_[static_cast<std::size_t>(route)][static_cast<std::size_t>(what)];
    counter.count.fetch_add(count, std::memory_order_relaxed);
    counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  const Counter& counter(RouteKind route, Counted what) const {
    return counters_[static_cast<std::size_t>(route)][static_cast<std::size_t>(what)];
  }

 private:
  std::atomic<bool> enabled_{false};
  std::array<std::array<Counter, kCountedNames.size()>, kRouteKinds> counters_{};
};

// The number of operations and bytes for each target since the last drain(). A window keeps these counts only for
// statistics or a trace. To count an operation takes two additions on the target's cache line, and two on that of its
// size; a drain looks at all counts.
//
// Thread safety: add(), add_slow() and drain() any, after expect_threads(); each(), slow() and sizes() any. Memory: 112
// bytes per target that is used, and 4 KiB.
class OperationCounts {
 public:
  // The operations on data: the values of Counted before kControl.
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Counted::kNotified) + 1;

  struct Cell {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    void add(const Cell& other) {
      count += other.count;
      bytes += other.bytes;
    }
  };
  // The counts of all targets by kind and size. The class of a size is 0 for no bytes, else one more than the exponent
  // of the power of two that is not smaller: 1 for 1 byte, 4 for 5 to 8 bytes.
  static constexpr std::size_t kSizes = 42;
  using Sizes = std::array<std::array<Cell, kSizes>, kKinds>;
  static std::size_t size_class(std::uint64_t bytes) {
    return bytes == 0 ? 0 : std::min<std::size_t>(1 + static_cast<std::size_t>(std::bit_width(bytes - 1)), kSizes - 1);
  }
  // The counts of one target, by Counted.
  struct Row {
    std::int32_t target = 0;
    std::array<Cell, kKinds> cells{};
    Row* before = nullptr;  // the row that was made before this one
  };

  // `threaded`: several threads may count at once.
  explicit OperationCounts(bool threaded) : threaded_(threaded) {}

  // From now on several threads may count at once, and row() returns null.
  void expect_threads() { threaded_ = true; }

  // Returns the counts for add_here() if only one thread counts, otherwise null. They do not move.
  Row* row(int target) { return threaded_ ? nullptr : &find(target); }
  // The same as add(), without the mutex.
  void add_here(Row& row, Counted what, std::size_t bytes) {
    row.cells[static_cast<std::size_t>(what)].add({1, bytes});
    sizes_[static_cast<std::size_t>(what)][size_class(bytes)].add({1, bytes});
  }
  void add(int target, Counted what, std::size_t bytes) {
    const std::scoped_lock held(mutex_);
    add_here(find(target), what, bytes);
  }

  // Counts the reason why an accumulate did not use atomics, but the target's accumulate lock or the target's handler.
  void add_slow(SlowAccumulate why, bool by_handler) {
    std::unique_lock<std::mutex> held;
    if (threaded_) held = std::unique_lock(mutex_);
    ++slow_[by_handler ? 1 : 0][static_cast<std::size_t>(why)];
  }
  using Slow = std::array<std::array<std::uint64_t, kSlowNames.size()>, 2>;  // lock, handler
  [[gnu::no_sanitize_thread]] Slow slow() const { return slow_; }
  // Of an operation that another thread counts meanwhile it may have half.
  [[gnu::no_sanitize_thread]] Sizes sizes() const { return sizes_; }

  // Calls take(target, what, count, bytes) for all counts, without a mutex and without a change. Another thread may
  // count or drain meanwhile: the last operations may then be missing, or be taken twice.
  template <class Take>
  [[gnu::no_sanitize_thread]] void each(Take&& take) const {
    for (const Row* row = last_row_.load(std::memory_order_acquire); row != nullptr; row = row->before) {
      for (std::size_t what = 0; what < kKinds; ++what) {
        const Cell cell = row->cells[what];
        if (cell.count != 0) take(row->target, static_cast<Counted>(what), cell.count, cell.bytes);
      }
    }
  }

  // Calls take(target, what, count, bytes) for all counts of the target `only`, or of all targets if `only` is
  // negative, and sets these counts to 0.
  template <class Take>
  void drain(int only, Take&& take) {
    std::unique_lock<std::mutex> held;
    if (threaded_) held = std::unique_lock(mutex_);
    for (auto& [target, row] : rows_) {
      if (only >= 0 && target != only) continue;
      for (std::size_t what = 0; what < kKinds; ++what) {
        Cell& cell = row.cells[what];
        if (cell.count != 0) take(target, static_cast<Counted>(what), cell.count, cell.bytes);
        cell = {};
      }
    }
  }

 private:
  // The operation has begun, so this must not fail.
  Row& find(int target) {
    const auto [found, is_new] = patiently([&] { return rows_.try_emplace(target); });
    Row& row = found->second;
    if (!is_new) return row;
    row.target = target;
    row.before = last_row_.load(std::memory_order_relaxed);
    last_row_.store(&row, std::memory_order_release);
    return row;
  }

  RelaxedFlag threaded_;
  std::unordered_map<int, Row> rows_;  // which do not move
  std::atomic<Row*> last_row_{nullptr};
  Slow slow_{};
  Sizes sizes_{};
  std::mutex mutex_;
};

}  // namespace farside
