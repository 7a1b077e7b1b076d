// SPDX-License-Identifier: BSD-3-Clause
// The format of the file PREFIX.RANK.trace (FARSIDE_TRACE), which the library writes and `farside trace` reads.
//
//   | TraceHeader | TraceRecord, header.records of them |
//   0             256                                   256 + 64 * records
//
// Integers have the byte order of the writer. `order` lets a reader recognize another byte order.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "transport/base/state.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/ticks.hpp"

namespace farside {

// Identifies the launch of a job, for the files that its processes write: statistics and traces. A reader can then tell
// files of one launch from files that another one has left in the same place: by random bits that all its ranks agree
// on in a window of all ranks, else by the time, since the processes of one launch run at the same time and those of
// two launches mostly do not. Processes that MPI_Comm_spawn started have ranks and agreed bits of their own; they are
// of the launch that ran at the same time.

// Returns the time now, in nanoseconds since 1970.
inline std::int64_t time_of_day() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Job {
  std::int32_t rank = -1;    // of this process in MPI_COMM_WORLD; -1: unknown
  std::int32_t ranks = 0;    // there; 0: unknown
  bool spawned = false;      // by MPI_Comm_spawn
  std::uint64_t agreed = 0;  // 0: unknown
  std::int64_t started = 0;  // when the process loaded farside, in nanoseconds since 1970
  std::int64_t written = 0;  // when the file was written

  // Whether both may be of one launch.
  bool may_be_same_launch(const Job& other) const {
    constexpr std::int64_t kSlack = 2'000'000'000;  // the clocks of two nodes may differ by so much
    if (!spawned && !other.spawned) {
      if (ranks != 0 && other.ranks != 0 && ranks != other.ranks) return false;
      if (agreed != 0 && other.agreed != 0) return agreed == other.agreed;
    }
    return started <= other.written + kSlack && other.started <= written + kSlack;
  }
};

struct TraceHeader {
  static constexpr std::array<char, 8> kMagic = {'f', 'a', 'r', 's', 'i', 'd', 'e', 'T'};
  static constexpr std::uint32_t kOrder = 0x01020304;
  static constexpr std::uint32_t kVersion = 5;

  std::array<char, 8> magic = kMagic;
  std::uint32_t order = kOrder;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = 0;
  std::uint32_t record_bytes = 0;
  std::int32_t rank = -1;  // in MPI_COMM_WORLD
  std::int32_t pid = 0;
  std::uint64_t records = 0;
  std::uint64_t lost_epochs = 0;  // overwritten by later records
  std::uint64_t lost_operations = 0;
  std::uint64_t lost_served = 0;
  std::uint64_t clock = 0;      // identifies the CLOCK_MONOTONIC: the same for all processes of a node
  ClockPair first;              // when the recording began
  ClockPair last;               // when the file was written
  std::array<char, 64> host{};  // ends with 0
  // The launch (Job).
  std::int32_t ranks = 0;
  std::uint32_t spawned = 0;  // 0 or 1
  std::uint64_t agreed = 0;
  std::int64_t process_started = 0;
  std::int64_t written = 0;
  std::array<char, 56> unused{};
};
static_assert(sizeof(TraceHeader) == 256 && std::is_trivially_copyable_v<TraceHeader>);

enum class TraceKind : std::uint8_t {
  kWindow = 1,  // a window: created at begin, freed at end (0: not yet)
  kClock,       // another clock of the run (granted), its lead over this one in ns (begin), its uncertainty (end)
  kEpoch,       // see below
  kCounts,      // more operations of the epoch in the record before it
  kFlush,       // a flush that waited: begin, end
  kOperation,   // an operation that is no load or store: begin, end (fabric: when issued; cma: when complete)
  kServed,      // the progress thread executed a request of another process: begin, end, bytes
  kTotal,       // all epochs of a kind, with the overwritten ones: count, ticks in them (begin), ticks waited (end)
  kText,        // a TraceText
  kNotified,    // a wait for a notification: begin, end
  kReport,      // an error or warning about the program: begin and end, when; count, the number of its text
};

enum class EpochKind : std::uint8_t { kFence, kStart, kPost, kLockShared, kLockExclusive, kLockAll };
inline constexpr std::array<const char*, 6> kEpochNames = {"fence",       "start",          "post",
                                                           "lock_shared", "lock_exclusive", "lock_all"};

// An epoch: a call opened it at `begin` and succeeded at `granted`. Another call closed it from `closing` to `end` (0:
// the epoch was open when the file was written). Both granted - begin and end - closing are waits for other ranks: the
// first for a lock or the posts of a start; the second for a fence's barrier, the completes of a wait, or the data and
// the release of an unlock.
struct TraceRecord {
  TraceKind kind = TraceKind::kEpoch;
  std::uint8_t detail = 0;   // kEpoch, kTotal: EpochKind; kWindow: TraceFlavor
  std::uint8_t what = 0;     // kOperation, kEpoch and kCounts with count > 0: Counted
  std::uint8_t route = 0;    // RouteKind of these operations
  std::uint32_t window = 0;  // number of the window at this process
  std::int32_t target = -1;  // rank in the window; -1: several or none
  std::uint16_t site = 0;    // number of the place of the call (kEpoch: that opened it) in the program; 0: unknown
  std::uint16_t unused = 0;
  Ticks begin = 0;
  Ticks granted = 0;  // kWindow: an id, the same on all ranks
  Ticks closing = 0;  // kWindow: rank | ranks << 32
  Ticks end = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(TraceRecord) == 64 && std::is_trivially_copyable_v<TraceRecord>);

// A record that is a text. A longer text is continued by the next records of the same kind and number.
struct TraceText {
  enum class Of : std::uint8_t {
    kWindow,  // the name of the window `number` (MPI_Win_set_name)
    kSite,    // where the site `number` is: "function+0x12 (FILE+0x1234)"
    kCpus,    // the CPUs that the process may use: "0-3,8"
    kReport,  // the line of the report `number`
  };
  static constexpr std::size_t kMost = 4096;  // bytes of one text; the rest is left out

  TraceKind kind = TraceKind::kText;
  Of of = Of::kWindow;
  std::uint16_t bytes = 0;  // of `text` that are in use
  std::uint32_t number = 0;
  std::array<char, 56> text{};
};
static_assert(sizeof(TraceText) == sizeof(TraceRecord) && std::is_trivially_copyable_v<TraceText>);

enum class TraceFlavor : std::uint8_t { kCreate, kAllocate, kShared, kDynamic };
inline constexpr std::array<const char*, 4> kFlavorNames = {"create", "allocate", "allocate_shared", "create_dynamic"};

// The recorder for FARSIDE_TRACE: ring buffers of the records of one process. A full ring overwrites its oldest records
// and counts them. Epochs, operations and the work of the progress thread have a ring each, so that many records of one
// kind do not overwrite those of another.
//
// Thread safety: any. Memory: at most 4, 2 and 1 MiB; none without a trace.
class TraceRing {
 public:
  // `capacity`: a power of two.
  explicit TraceRing(std::size_t capacity)
      : mask_(capacity - 1), records_(new std::byte[capacity * sizeof(TraceRecord)]) {}

  void add(const TraceRecord& record) {
    const std::scoped_lock held(mutex_);
    new (place(next_++)) TraceRecord(record);
  }
  std::uint64_t lost() const {
    const std::scoped_lock held(mutex_);
    return next_ - kept();
  }
  // Returns the records, the oldest first.
  std::vector<TraceRecord> take() const {
    const std::scoped_lock held(mutex_);
    std::vector<TraceRecord> result;
    result.reserve(kept());
    for (std::uint64_t i = next_ - kept(); i < next_; ++i) result.push_back(*place(i));
    return result;
  }

 private:
  TraceRecord* place(std::uint64_t number) const {
    return reinterpret_cast<TraceRecord*>(records_.get()) + (number & mask_);
  }
  std::uint64_t kept() const { return std::min<std::uint64_t>(next_, mask_ + 1); }

  std::size_t mask_;
  std::unique_ptr<std::byte[]> records_;  // not initialized, so that only touched pages take memory
  std::uint64_t next_ = 0;                // the number of records so far
  mutable BiasedMutex mutex_;
};

class Trace {
 public:
  Trace() : first_(ClockPair::read()) {}

  // Returns the trace of this process; null: nothing is recorded.
  static Trace* active() { return this_process.trace.load(std::memory_order_acquire); }
  // Creates the trace. To be called by one thread.
  static void activate() {
    if (active() == nullptr) this_process.trace.store(new Trace(), std::memory_order_release);
  }

  TraceRing& epochs() { return epochs_; }
  TraceRing& operations() { return operations_; }
  TraceRing& served() { return served_; }
  const ClockPair& first() const { return first_; }

 private:
  TraceRing epochs_{std::size_t{1} << 16};
  TraceRing operations_{std::size_t{1} << 15};
  TraceRing served_{std::size_t{1} << 14};
  ClockPair first_;
};

// Records its own life as the execution of a request of another process.
class TraceServed : NotCopied {
 public:
  // `route`: the route of the request.
  TraceServed(RouteKind route, std::uint64_t bytes)
      : route_(route), bytes_(bytes), begin_(Trace::active() != nullptr ? ticks() : 0) {}
  ~TraceServed() {
    if (begin_ != 0) [[unlikely]]
      add();
  }

 private:
  [[gnu::cold]] void add() const {
    TraceRecord record;
    record.kind = TraceKind::kServed;
    record.route = static_cast<std::uint8_t>(route_);
    record.begin = begin_;
    record.end = ticks();
    record.count = 1;
    record.bytes = bytes_;
    Trace::active()->served().add(record);
  }
  RouteKind route_;
  std::uint64_t bytes_;
  Ticks begin_;
};

}  // namespace farside
