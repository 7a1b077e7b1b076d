// SPDX-License-Identifier: BSD-3-Clause
// How many operations went to each target, and how many bytes, since somebody last asked. Kept only when statistics or
// a trace are asked for. Counting is two additions on a cache line that stays with the target; what was touched is
// listed, so that asking costs what was done and not the number of targets.
//
// Memory: 80 bytes per target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/base/relaxed_flag.hpp"
#include "transport/base/statistics.hpp"

namespace farside {

class OperationCounts {
 public:
  // The operations on data: Counted without the protocols' and the handler's.
  static constexpr std::size_t kKinds = static_cast<std::size_t>(Counted::kCompareAndSwap) + 1;

  struct Cell {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
  };
  // Of one target, by Counted.
  using Row = std::array<Cell, kKinds>;

  // `threaded`: several threads may count at once.
  OperationCounts(int targets, bool threaded) : threaded_(threaded), rows_(static_cast<std::size_t>(targets)) {}

  // From now on several threads may count at once, and rows are no longer counted in by themselves.
  void expect_threads() { threaded_ = true; }

  // Where one thread counts by itself, by add_here; null if there may be several.
  Row* row(int target) { return threaded_ ? nullptr : &rows_[static_cast<std::size_t>(target)]; }
  // The same as add, in a few instructions.
  void add_here(Row& row, Counted what, std::size_t bytes) {
    Cell& cell = row[static_cast<std::size_t>(what)];
    cell.bytes += bytes;
    if (cell.count++ == 0) [[unlikely]] touch(static_cast<std::int32_t>(&row - rows_.data()), what);
  }
  void add(int target, Counted what, std::size_t bytes) {
    const std::scoped_lock held(mutex_);
    add_here(rows_[static_cast<std::size_t>(target)], what, bytes);
  }

  // Why an accumulate did not go by atomics: under the accumulate lock of its target, or by its handler.
  void add_slow(SlowAccumulate why, bool by_handler) {
    if (threaded_) [[unlikely]] {
      const std::scoped_lock held(mutex_);
      ++slow_[by_handler ? 1 : 0][static_cast<std::size_t>(why)];
    } else {
      ++slow_[by_handler ? 1 : 0][static_cast<std::size_t>(why)];
    }
  }
  using Slow = std::array<std::array<std::uint64_t, kSlowNames.size()>, 2>;  // lock, handler
  const Slow& slow() const { return slow_; }

  // Gives take(target, what, count, bytes) all that was counted towards `only` (or everybody, if that is negative)
  // since the last time, and forgets it.
  template <class Take>
  void drain(int only, Take&& take) {
    std::unique_lock<std::mutex> held;
    if (threaded_) held = std::unique_lock(mutex_);
    std::size_t kept = 0;
    for (const Touched& each : touched_) {
      if (only >= 0 && each.target != only) {
        touched_[kept++] = each;
        continue;
      }
      Cell& cell = rows_[static_cast<std::size_t>(each.target)][static_cast<std::size_t>(each.what)];
      take(each.target, each.what, cell.count, cell.bytes);
      cell = {};
    }
    touched_.resize(kept);
  }

 private:
  struct Touched {
    std::int32_t target;
    Counted what;
  };
  void touch(std::int32_t target, Counted what);

  RelaxedFlag threaded_;
  std::vector<Row> rows_;
  std::vector<Touched> touched_;
  Slow slow_{};
  std::mutex mutex_;
};

}  // namespace farside
