// SPDX-License-Identifier: BSD-3-Clause
// The statistics of one window, kept if FARSIDE_STATS or FARSIDE_TRACE is set: its epochs and the waits in them, its
// operations by route, its flushes. Sums go to the statistics file, each epoch to the trace. A window without window
// statistics, which is the default, pays one test in calls outside the fast path.
//
// Waits are measured by Waiter (transport/base/waiter.hpp).
//
// Thread safety: sums() any; the others any if the space expects several threads, else one thread at a time. A mutex
// guards the sums, because a thread that writes the files on a signal reads them
// (files_on_signal.cpp). Memory: with statistics 4 bytes per rank, and OperationCounts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <mpi.h>

#include "pmpi/call_sites.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waiter.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

// The sums of one window, or of all windows of one kind.
struct StatisticsSums {
  // Of epochs, operations, or calls that waited. Each uses some of the members.
  struct Sum {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    Ticks time = 0;  // inside epochs (with a trace only), or in calls of operations that are not loads and stores
    Ticks waited = 0;
    Ticks longest = 0;  // wait
    void add(const Sum& other);
  };
  static constexpr std::size_t kKinds = OperationCounts::kKinds;

  std::uint64_t windows = 0;
  std::array<Sum, kEpochNames.size()> epochs{};
  std::array<Sum, kWaitNames.size()> waits{};
  std::array<std::array<Sum, kKinds>, kRouteKinds> operations{};
  OperationCounts::Slow slow{};
  std::uint64_t flushes = 0;  // of one target
  std::uint64_t flushes_all = 0;
  Sum slow_operations;
  // By rank among all processes, -1: others. Waits are those of locks, unlocks and flushes of this target alone.
  std::map<int, Sum> targets;
  OperationCounts::Sizes sizes{};
  std::array<std::array<Sum, OperationCounts::kSizes>, kKinds> slow_sizes{};  // operations: neither loads nor stores
  std::set<std::string> names;  // that the program has given, at most kMostNames
  static constexpr std::size_t kMostNames = 8;

  void add(const StatisticsSums& other);
};

// The names of the routes to the ranks of a space.
std::string names_of_routes(const Space& space, const char* between);

class WindowStatistics {
 public:
  // Returns null unless statistics or a trace are enabled. `group`: the window's. `id`: the same on all its ranks.
  static std::unique_ptr<WindowStatistics> open(Space& space, MPI_Group group, TraceFlavor flavor, std::uint64_t id,
                                                bool threaded);
  ~WindowStatistics();

  // The begin of a call: the time, and the total wait of this thread so far.
  struct Moment {
    Ticks at;
    Ticks waited;
  };
  static Moment begin() { return {ticks(), this_thread.waited}; }

  // Each function records one successful call. `begun` is the begin() of that call.
  // An epoch has begun, or ended: at one target, or -1. `waits`: the kind of the call.
  void opened(EpochKind kind, int target, WaitKind waits, const Moment& begun);
  void closed(EpochKind kind, int target, WaitKind waits, const Moment& begun);
  void fenced(bool no_succeed, const Moment& begun);
  // A negative `target` stands for all targets.
  void flushed(int target, const Moment& begun);
  // A notification was awaited.
  void notified(const Moment& begun) {
    const std::scoped_lock held(mutex_);
    if (waited(WaitKind::kNotify, -1, begun) == 0 || trace_ == nullptr) return;
    record(trace_->epochs(), {.kind = TraceKind::kNotified}, begun);
  }
  // Records an operation that is not a load or store.
  void operated(int target, Counted what, std::uint64_t bytes, const Moment& begun);

  // The program has given the window a name.
  void named(const std::string& name) {
    const std::scoped_lock held(mutex_);
    if (!name.empty() && sums_.names.size() < StatisticsSums::kMostNames) sums_.names.insert(name);
    traced_.name = name;
  }

  // Returns the sums so far. If another thread counts an operation at the same time, they may contain only a part of
  // it.
  StatisticsSums sums() const;
  const std::string& kind() const { return kind_; }
  // The record of the window in the trace, and its name.
  struct Traced {
    TraceRecord record;
    std::string name;
  };
  Traced traced() const {
    const std::scoped_lock held(mutex_);
    return traced_;
  }

 private:
  struct Open {
    EpochKind kind;
    int target;
    Ticks begin;
    Ticks granted;
    std::uint16_t site = 0;
  };
  WindowStatistics(Space& space, MPI_Group group, TraceFlavor flavor, std::uint64_t id, bool threaded);
  // Counts the time that the call has waited since `begun`, also for the target unless it is negative, and returns it.
  // Keeps the place of the call in site_.
  Ticks waited(WaitKind kind, int target, const Moment& begun);
  StatisticsSums::Sum& target_sums(StatisticsSums& sums, int target) const {
    return sums.targets[process_ranks_[static_cast<std::size_t>(target)]];
  }
  // Adds a count of operations to the sums.
  void count(StatisticsSums& sums, int target, Counted what, std::uint64_t count, std::uint64_t bytes) const;
  void record(const Open& epoch, Ticks closing, Ticks end);
  // Adds a record of a call that ends now, of which the caller gives what is its own.
  void record(TraceRing& to, TraceRecord call, const Moment& begun) const;
  void drain(int only);

  Space& space_;
  OperationCounts& counts_;
  Trace* trace_;
  Traced traced_;
  std::string kind_;  // the statistics sum the windows of one kind
  const std::vector<int> process_ranks_;
  std::uint16_t site_ = 0;  // of the call that is being recorded
  std::vector<Open> open_;
  StatisticsSums sums_;
  std::vector<TraceRecord> drained_;  // counts of the epoch that ends
  mutable std::mutex mutex_;
};

// The window statistics of the process: those of live windows, and the sums of freed ones. Thread safety: any thread.
class AllWindowStatistics {
 public:
  // Returns the number of the window in the trace.
  std::uint32_t enter(WindowStatistics& window_statistics) {
    const std::scoped_lock held(mutex_);
    live_.push_back(&window_statistics);
    return next_number_++;
  }
  void leave(WindowStatistics& window_statistics);
  // Returns the sums by kind of window, such as "create cma". There are few kinds. It takes the mutex of each
  // window in turn.
  std::map<std::string, StatisticsSums> sums();
  // For the trace: the live windows, and the first 4,096 freed ones.
  std::vector<WindowStatistics::Traced> traced() const;

 private:
  mutable std::mutex mutex_;
  std::vector<WindowStatistics*> live_;
  std::map<std::string, StatisticsSums> freed_;
  std::vector<WindowStatistics::Traced> freed_windows_;
  std::uint32_t next_number_ = 0;
};

}  // namespace farside::pmpi
