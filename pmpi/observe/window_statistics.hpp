// SPDX-License-Identifier: BSD-3-Clause
// The window statistics of one window, kept when FARSIDE_STATS or FARSIDE_TRACE ask for it: its epochs and how long
// calls waited in them, its operations by route, its flushes. Sums go to the statistics file, each epoch by itself to
// the trace. A window without an window statistics (the rule) loses nothing but a test in calls that are not on the
// fast path.
//
// Times are taken for the trace only, at the begin of a lock and at the end of its unlock, at both ends of the other
// synchronization calls. How long a call waited is known in both cases (transport/base/waited.hpp): who does not wait
// takes no time for it.
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

// What calls wait in.
enum class WaitKind : std::uint8_t { kLock, kFence, kStart, kWait, kComplete, kUnlock, kFlush, kOperation };
inline constexpr std::array<const char*, 8> kWaitNames = {"lock",     "fence",  "start", "wait",
                                                          "complete", "unlock", "flush", "operation"};

// Sums of one window, or of all that are alike.
struct StatisticsSums {
  struct Epochs {
    std::uint64_t count = 0;
    Ticks in_them = 0;            // known in a trace only
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
  Ticks slow_operations = 0;          // in calls of operations that are no loads and stores
  std::uint64_t slow_operation_calls = 0;

  void add(const StatisticsSums& other);
};

class WindowStatistics {
 public:
  // What is told of the window. `id`: alike on all its ranks.
  struct About {
    TraceFlavor flavor;
    std::uint64_t id;
    const std::atomic<std::uint64_t>* fast_flushes;  // the window counts those by itself
  };
  // Null unless statistics or a trace are asked for.
  static std::unique_ptr<WindowStatistics> open(Space& space, const About& about, bool threaded);
  WindowStatistics(const WindowStatistics&) = delete;
  WindowStatistics& operator=(const WindowStatistics&) = delete;
  ~WindowStatistics();

  // A call: the time at which it began, and what this thread had waited before it.
  struct Moment {
    Ticks at;
    Ticks waited;
  };
  Moment begin() const { return {now(), Waited::here().total}; }
  // The same without the time, for a call whose begin does not matter.
  static Moment begin_untimed() { return {0, Waited::here().total}; }
  // The same with the time, without a trace, too.
  static Moment begin_operation() { return {ticks(), Waited::here().total}; }

  // The calls, when they have succeeded. Of those that wait, `begun` is their begin().
  void locked(int target, EpochKind kind, const Moment& begun);
  void unlocked(int target, EpochKind kind, const Moment& begun);
  void fenced(const Moment& begun, bool no_succeed);
  void started(const Moment& begun);
  void completed(const Moment& begun);
  void posted(const Moment& begun);
  void exposure_ended(const Moment& begun);
  void locked_all(const Moment& begun);
  void unlocked_all(const Moment& begun);
  // `target` negative: all.
  void flushed(int target, const Moment& begun);
  // An operation that is no load or store.
  void operated(int target, Counted what, std::uint64_t bytes, const Moment& begun);

  // From now on several threads may call at once.
  void expect_threads();

  // Sums up to now.
  StatisticsSums sums();
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
  // What the call has waited since; counted.
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
  const std::atomic<std::uint64_t>* fast_flushes_;
  std::uint32_t window_ = 0;          // its number in the trace
  std::string kind_;                  // windows of the same kind are summed up in the statistics
  std::vector<Open> open_;
  StatisticsSums sums_;
  std::vector<TraceRecord> drained_;  // of the epoch that ends
  mutable std::mutex mutex_;
};

// The window statistics of the process: those of windows that live, and the sums of those that were freed.
class AllWindowStatistics {
 public:
  static AllWindowStatistics& instance();
  void enter(WindowStatistics& window_statistics);
  void leave(WindowStatistics& window_statistics);
  // By kind of window: "create, cma" or the like; of which there are few.
  std::map<std::string, StatisticsSums> sums();
  // For the trace: a window's number, and what is known of the windows (the first 4,096 of the process).
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
