// SPDX-License-Identifier: BSD-3-Clause
// The statistics of one window, kept if FARSIDE_STATS or FARSIDE_TRACE is set: its epochs and the waits in them, its
// operations by route, its flushes. Sums go to the statistics file, each epoch to the trace. A window without window
// statistics, which is the default, pays one test in calls outside the fast path.
//
// Times are taken for the trace only: at the begin of a lock, at the end of its unlock, and at both ends of the other
// synchronization calls. Waits are measured in both cases (transport/base/waiter.hpp); a call that does not wait takes
// no time.
//
// Thread safety: sums() any; the others any if the window was opened as threaded, or after expect_threads(), else one
// thread at a time. A mutex guards the sums, because a thread that writes the files on a signal reads them
// (files_on_signal.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pmpi/observe/call_sites.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waiter.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

// The sums of one window, or of all windows of one kind.
struct StatisticsSums {
  struct Epochs {
    std::uint64_t count = 0;
    Ticks in_them = 0;  // with a trace only
    Ticks waited = 0;
  };
  struct Waits {
    std::uint64_t count = 0;  // calls that waited
    Ticks total = 0;
    Ticks longest = 0;
  };
  struct Operations {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
  };
  struct Target {
    Operations operations;
    Ticks waited = 0;  // in locks, unlocks and flushes of this target alone
    Ticks slow_operations = 0;
  };
  struct Sized {
    std::uint64_t count = 0;  // operations that are not loads and stores
    Ticks time = 0;
  };
  static constexpr std::size_t kKinds = OperationCounts::kKinds;

  std::uint64_t windows = 0;
  std::array<Epochs, kEpochNames.size()> epochs{};
  std::array<Waits, kWaitNames.size()> waits{};
  std::array<std::array<Operations, kKinds>, kRouteKinds> operations{};
  OperationCounts::Slow slow{};
  std::uint64_t flushes = 0;  // of one target
  std::uint64_t flushes_all = 0;
  Ticks slow_operations = 0;  // time in calls of operations that are not loads and stores
  std::uint64_t slow_operation_calls = 0;
  std::map<int, Target> targets;  // by rank among all processes; -1: others
  OperationCounts::Sizes sizes{};
  std::array<std::array<Sized, OperationCounts::kSizes>, kKinds> sized{};
  std::set<std::string> names;  // that the program has given, at most kMostNames
  static constexpr std::size_t kMostNames = 8;

  void add(const StatisticsSums& other);
};

class WindowStatistics {
 public:
  // The description of the window. `id`: the same on all its ranks. `process_rank` translates a rank of the window into
  // one among all processes, -1: none; it is called in calls of the program only.
  struct About {
    TraceFlavor flavor;
    std::uint64_t id;
    std::function<int(int)> process_rank;
  };
  // Returns null unless statistics or a trace are enabled.
  static std::unique_ptr<WindowStatistics> open(Space& space, const About& about, bool threaded);
  WindowStatistics(const WindowStatistics&) = delete;
  WindowStatistics& operator=(const WindowStatistics&) = delete;
  ~WindowStatistics();

  // The begin of a call: the time, and the total wait of this thread so far.
  struct Moment {
    Ticks at;
    Ticks waited;
  };
  Moment begin() const { return {now(), this_thread.waited}; }
  // Returns the begin without the time, for a call whose time of begin is not used.
  static Moment begin_untimed() { return {0, this_thread.waited}; }
  // Returns the begin with the time, also without a trace.
  static Moment begin_operation() { return {ticks(), this_thread.waited}; }

  // Each function records one successful call. `begun` is the begin() of that call.
  // An epoch has begun, or ended: at one target, or -1. `waits`: the kind of the call.
  void opened(EpochKind kind, int target, WaitKind waits, const Moment& begun);
  void closed(EpochKind kind, int target, WaitKind waits, const Moment& begun);
  void fenced(bool no_succeed, const Moment& begun);
  // A negative `target` stands for all targets.
  void flushed(int target, const Moment& begun);
  // Records an operation that is not a load or store.
  void operated(int target, Counted what, std::uint64_t bytes, const Moment& begun);

  // The program has given the window a name.
  void named(const std::string& name);

  // Prepares for calls from several threads at once.
  void expect_threads();

  // To be called in a call of the program: assigns the counts so far to the processes of their targets.
  void complete_targets();
  // Returns the sums so far, without a call of the runtime. Operations count for target -1 if no call has yet learned
  // the rank of their target among all processes. If another thread counts an operation at the same time, the sums may
  // contain only a part of this operation.
  StatisticsSums sums() const;
  const std::string& kind() const { return kind_; }

 private:
  struct Open {
    EpochKind kind;
    int target;
    Ticks begin;
    Ticks granted;
    std::uint16_t site = 0;
  };
  WindowStatistics(Space& space, const About& about, bool threaded);
  Ticks now() const { return trace_ != nullptr ? ticks() : 0; }
  // Returns the time that the call has waited since `begun`, and counts it. Keeps the place of the call in site_.
  Ticks waited(WaitKind kind, const Moment& begun);
  // Asks the runtime for the rank among all processes of this target, or of all that have been counted if it is
  // negative, once. Takes no mutex during the call of the runtime.
  void query_processes(int target);
  // The rank of a target among all processes; -1 if query_processes() has not been called for it.
  int process_of(int target) const;
  StatisticsSums::Target& target_sums(int target);
  void record(const Open& epoch, Ticks closing, Ticks end);
  void drain(int only);

  Space& space_;
  OperationCounts& counts_;
  Trace* trace_;
  std::uint32_t window_ = 0;  // its number in the trace
  std::string kind_;          // the statistics sum the windows of one kind
  std::function<int(int)> process_rank_;
  std::unordered_map<int, int> process_ranks_;  // of the targets so far
  std::uint16_t site_ = 0;                      // of the call that is being recorded
  std::vector<Open> open_;
  StatisticsSums sums_;
  std::vector<TraceRecord> drained_;  // counts of the epoch that ends
  mutable std::mutex mutex_;
};

// The window statistics of the process: those of live windows, and the sums of freed ones. Thread safety: any thread.
class AllWindowStatistics {
 public:
  void enter(WindowStatistics& window_statistics);
  void leave(WindowStatistics& window_statistics);
  // Returns the sums by kind of window, such as "create cma". There are few kinds. It takes the mutex of each
  // window in turn.
  std::map<std::string, StatisticsSums> sums();
  // Assigns what live windows have counted to the processes of their targets. To be called in a call of the program,
  // before sums() are written at the end.
  void complete_targets();
  // For the trace: returns the number of a new window, and keeps a record of each of the first 4,096 windows.
  std::uint32_t add_window(TraceRecord window);
  void window_freed(std::uint32_t number, Ticks at);
  std::vector<TraceRecord> windows() const;
  // The names of windows by their number.
  void window_named(std::uint32_t number, const std::string& name);
  std::map<std::uint32_t, std::string> window_names() const;

 private:
  mutable std::mutex mutex_;
  std::vector<WindowStatistics*> live_;
  std::map<std::string, StatisticsSums> freed_;
  std::vector<TraceRecord> windows_;
  std::map<std::uint32_t, std::string> names_;
  std::uint32_t next_number_ = 0;
};

}  // namespace farside::pmpi
