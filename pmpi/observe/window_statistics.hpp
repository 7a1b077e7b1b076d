// SPDX-License-Identifier: BSD-3-Clause
// The statistics of one window, kept if FARSIDE_STATS or FARSIDE_TRACE is set: its epochs and the waits in them, its
// operations by route, its flushes. Sums go to the statistics file, each epoch to the trace. A window without window
// statistics, which is the default, pays one test in calls outside the fast path.
//
// Times are taken for the trace only: at the begin of a lock, at the end of its unlock, and at both ends of the other
// synchronization calls. Waits are measured in both cases (transport/base/waited.hpp); a call that does not wait takes
// no time.
//
// Thread safety: any thread if the window was opened as threaded, or after expect_threads(); else one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/base/trace.hpp"
#include "transport/base/waited.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

// The calls that wait.
enum class WaitKind : std::uint8_t { kLock, kFence, kStart, kWait, kComplete, kUnlock, kFlush, kOperation };
inline constexpr std::array<const char*, 8> kWaitNames = {"lock",     "fence",  "start", "wait",
                                                          "complete", "unlock", "flush", "operation"};

// The sums of one window, or of all windows of one kind.
struct StatisticsSums {
  struct Epochs {
    std::uint64_t count = 0;
    Ticks in_them = 0;            // with a trace only
    Ticks waited = 0;
  };
  struct Waits {
    std::uint64_t count = 0;      // calls that waited
    Ticks total = 0;
    Ticks longest = 0;
  };
  struct Operations {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kKinds = OperationCounts::kKinds;

  std::uint64_t windows = 0;
  std::array<Epochs, kEpochNames.size()> epochs{};
  std::array<Waits, kWaitNames.size()> waits{};
  std::array<std::array<Operations, kKinds>, kRouteNames.size()> operations{};
  OperationCounts::Slow slow{};
  std::uint64_t flushes = 0;          // of one target
  std::uint64_t flushes_all = 0;
  Ticks slow_operations = 0;          // time in calls of operations that are not loads and stores
  std::uint64_t slow_operation_calls = 0;

  void add(const StatisticsSums& other);
};

class WindowStatistics {
 public:
  // The description of the window. `id`: the same on all its ranks.
  struct About {
    TraceFlavor flavor;
    std::uint64_t id;
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
  Moment begin() const { return {now(), Waited::here().total}; }
  // Returns the begin without the time, for a call whose time of begin is not used.
  static Moment begin_untimed() { return {0, Waited::here().total}; }
  // Returns the begin with the time, also without a trace.
  static Moment begin_operation() { return {ticks(), Waited::here().total}; }

  // Each function records one successful call. `begun` is the begin() of that call.
  void locked(int target, EpochKind kind, const Moment& begun);
  void unlocked(int target, EpochKind kind, const Moment& begun);
  void fenced(const Moment& begun, bool no_succeed);
  void started(const Moment& begun);
  void completed(const Moment& begun);
  void posted(const Moment& begun);
  void exposure_ended(const Moment& begun);
  void locked_all(const Moment& begun);
  void unlocked_all(const Moment& begun);
  // A negative `target` stands for all targets.
  void flushed(int target, const Moment& begun);
  // Records an operation that is not a load or store.
  void operated(int target, Counted what, std::uint64_t bytes, const Moment& begun);

  // Prepares for calls from several threads at once.
  void expect_threads();

  // Returns the sums so far. Any thread: of an operation that another one counts meanwhile it may have half.
  StatisticsSums sums() const;
  const std::string& kind() const { return kind_; }

 private:
  struct Open {
    EpochKind kind;
    int target;
    Ticks begin;
    Ticks granted;
  };
  WindowStatistics(Space& space, const About& about, bool threaded);
  Ticks now() const { return trace_ != nullptr ? ticks() : 0; }
  // Returns the time that the call has waited since `begun`, and counts it.
  Ticks waited(WaitKind kind, const Moment& begun);
  void opened(EpochKind kind, int target, const Moment& begun, WaitKind waits);
  void closed(EpochKind kind, int target, const Moment& begun, WaitKind waits);
  void record(const Open& epoch, Ticks closing, Ticks end);
  void drain(int only);
  std::unique_lock<std::mutex> guard() const {
    return threaded_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }

  Space& space_;
  OperationCounts& counts_;
  Trace* trace_;
  RelaxedFlag threaded_;
  std::uint32_t window_ = 0;          // its number in the trace
  std::string kind_;                  // the statistics sum the windows of one kind
  std::vector<Open> open_;
  StatisticsSums sums_;
  std::vector<TraceRecord> drained_;  // counts of the epoch that ends
  mutable std::mutex mutex_;
};

// The window statistics of the process: those of live windows, and the sums of freed ones. Thread safety: any thread.
class AllWindowStatistics {
 public:
  static AllWindowStatistics& instance();
  void enter(WindowStatistics& window_statistics);
  void leave(WindowStatistics& window_statistics);
  // Returns the sums by kind of window, such as "create cma". There are few kinds. The mutex that it takes is held by
  // others for the making and freeing of windows' statistics only.
  std::map<std::string, StatisticsSums> sums();
  // For the trace: returns the number of a new window, and keeps a record of each of the first 4,096 windows.
  std::uint32_t add_window(TraceRecord window);
  void window_freed(std::uint32_t number, Ticks at);
  std::vector<TraceRecord> windows() const;

 private:
  mutable std::mutex mutex_;
  std::vector<WindowStatistics*> live_;
  std::map<std::string, StatisticsSums> freed_;
  std::vector<TraceRecord> windows_;
  std::uint32_t next_number_ = 0;
};

}  // namespace farside::pmpi
