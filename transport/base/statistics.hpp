// SPDX-License-Identifier: BSD-3-Clause
// What this process did on which route, counted when FARSIDE_STATS asks for it. Written out by pmpi/.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farside {

enum class RouteKind : std::uint8_t { kSelf, kMapped, kCma, kFabric };
inline constexpr std::array<const char*, 4> kRouteNames = {"self", "mapped", "cma", "fabric"};

// kControl: operations of protocols on control words (locks, notices, barriers). kNicAtomic: those of both that an
// adapter executed. kFromRuntime: looks of threads that waited in the MPI runtime, if there was something.
enum class Counted : std::uint8_t {
  kPut,
  kGet,
  kAccumulate,
  kFetch,
  kCompareAndSwap,
  kControl,
  kHandler,
  kNicAtomic,
  kFromRuntime
};
inline constexpr std::array<const char*, 9> kCountedNames = {
    "put",     "get",     "accumulate", "get_accumulate", "compare_and_swap",
    "control", "handler", "nic_atomic", "from_runtime"};

// Why an accumulate goes the slow way (transport/README.md): its type is of 1 or 2 bytes or wider than the CPU's
// atomics; it is not aligned; it adds floating-point numbers where nobody needs the fabric; some rank of the window is
// reached by process_vm_readv/writev; the provider has no such atomic, or it crosses from one attached region into the
// next.
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

  // Relaxed: figures are read after the work they count, by the thread that finalizes.
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
