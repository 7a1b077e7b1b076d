// SPDX-License-Identifier: BSD-3-Clause
// The counts of this process's operations by route, for FARSIDE_STATS. pmpi/ writes them to a file. Thread safety: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farside {

enum class RouteKind : std::uint8_t { kSelf, kMapped, kCma, kFabric };
inline constexpr std::array<const char*, 4> kRouteNames = {"self", "mapped", "cma", "fabric"};

// kControl: operations of protocols on control words (locks, notifications, barriers). kHandler: requests that the
// handler of this process executed. kNicAtomic: atomics on data or control words that an adapter executed.
// kFromRuntime: successful polls of threads that waited in the MPI runtime. kNearHandOff: locks of ranks of other nodes
// that a rank of this node has handed to this process (epochs/protocols/near_lock.hpp).
enum class Counted : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,
  kFetch,
  kCompareAndSwap,
  kControl,
  kHandler,
  kNicAtomic,
  kFromRuntime,
  kNearHandOff
};
inline constexpr std::array<const char*, 10> kCountedNames = {
    "put",     "get",     "accumulate", "get_accumulate", "compare_and_swap",
    "control", "handler", "nic_atomic", "from_runtime", "near_hand_off"};

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
  std::array<std::array<Counter, kCountedNames.size()>, kRouteNames.size()> counters_{};
};

}  // namespace farside
