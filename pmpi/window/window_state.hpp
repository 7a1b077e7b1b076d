// SPDX-License-Identifier: BSD-3-Clause
// The state that the parts of a window share: memory, epoch state, lock table, settings. The parts (operations.hpp,
// passive_target.hpp, active_target.hpp, wait_reports.hpp) are views of it, which cost nothing: the compiler passes the
// address of the state. The order of the members keeps those of the fast path together.
//
// Thread safety: any thread, after expect_threads() or if the window was made with `threaded`. Operations and flushes
// on the fast path read the epoch state without the guard; all other calls take it for a few instructions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <mpi.h>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/library/library.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/state.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/waiter.hpp"
#include "transport/process.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

// Locks that ranks have died with (epochs/lock.md, Failures). A lock is lost if a rank of the window has ended, no
// living rank is known to hold the lock alone, and no rank has departed from it between two looks.
//
// A wait for a lock finds no dead rank by its own operations: it sleeps in a queue. So it looks for them. For ranks of
// this node it asks the kernel. A rank of another node has ended if a read of a control word has failed, or if two
// looks in a row have found that it refuses connections, or that its host accepts none for half of
// FARSIDE_PEER_TIMEOUT. The host of a stopped rank acknowledges the read.
//
// Thread safety: any thread. Cost of a look: 10 us per rank of the node, and one read each for at most kMostReads other
// ranks, the next ones with each look, to which it connects.
struct WindowState;

class LostLocks {
 public:
  explicit LostLocks(WindowState& window) : window_(window) {}

  // The findings of the last look of a wait for a lock.
  struct Look {
    Clock::time_point next;
    std::vector<std::optional<std::uint64_t>> seen = {};
  };
  // Returns the error of the wait if the lock is lost. Behind a living rank that waits for the lock with a near lock,
  // this is that rank's to find: it may be able to do without the global lock.
  std::optional<Error> find(const epochs::AwaitedLock& lock, Look& look);
  // Returns that error, which later attempts get immediately; or success, if the lock can be acquired without the
  // global lock now.
  Status declare(const epochs::AwaitedLock& lock, epochs::LockType type, const Error& why);
  // `rank`: that of the lock, or -1 for a lock_all.
  Status check(int rank, epochs::LockType type);

 private:
  static constexpr std::size_t kMostReads = 256;
  struct Lost {
    epochs::AwaitedLock lock;
    epochs::LockType by;  // the lock that waited for it
    Error why;
  };
  struct Read {
    explicit Read(int of) : rank(of) {}
    int rank;
    ControlMemory::Operation operation;
  };
  struct Dead {
    int rank;
    std::string how;  // in parentheses
  };
  // Looks once, first of all at the rank `awaited`.
  std::vector<Dead> look_for_dead(int awaited);
  void look_over_fabric(int rank, std::vector<Dead>& dead);
  // Whether one of these ranks is ahead of this one in the queue of a near lock.
  bool is_behind(const std::vector<Dead>& ahead) const;

  WindowState& window_;
  std::vector<Lost> lost_;  // guarded by the window's guard
  std::mutex mutex_;        // guards the following members
  std::list<Read> reads_;   // in flight
  std::set<int> suspects_;  // the ranks that could not be reached at the last look
  int next_ = 0;            // the rank to be looked at next
};

class Strict;
class WindowStatistics;
struct NotificationCounters;

// The limit of a wait for a notification that may be lost (PeerLosses), or may only be late. One
// object per wait. Not thread-safe.
class LossTimeout {
 public:
  // `rank`: the rank from which such a notification is awaited, or -1 if there is none. Returns whether it has been
  // awaited for FARSIDE_PEER_TIMEOUT (0: never). The caller calls this function repeatedly.
  bool is_expired(int rank) {
    if (rank < 0) [[likely]]
      return false;
    const std::chrono::seconds timeout(Process::instance().settings().value()->peer_timeout);
    const Clock::time_point now = Clock::now();
    if (std::exchange(rank_, rank) != rank) begin_ = now;
    return timeout.count() > 0 && now - begin_ >= timeout;
  }
  // The error then.
  Error error() const {
    return {ErrorKind::kPeer, "the connection was lost, and a notification of the rank perhaps with it", rank_};
  }

 private:
  int rank_ = -1;
  Clock::time_point begin_{};
};

// Runs a protocol to its end, or until one of its operations has failed; returns the error of that operation.
template <class Protocol>
Status run(WakeEvent& wake_event, Protocol& protocol) {
  ControlMemory::Operation* failed = nullptr;
  wait_until(wake_event, [&] { return protocol.advance() || (failed = protocol.failed_operation()) != nullptr; });
  return failed == nullptr ? Status() : failed->take_error();
}

// The handle of the last group of a start or post, whose members the epoch state has. A handle names the same members
// until it is freed, and may then name others: the cache is invalid after any group was freed.
class KnownGroup {
 public:
  bool is(MPI_Group group) const {
    return group == group_ && freed_ == library().groups_freed.load(std::memory_order_relaxed) &&
           group_ != MPI_GROUP_NULL;
  }
  void set(MPI_Group group) {
    group_ = group;
    freed_ = library().groups_freed.load(std::memory_order_relaxed);
  }

 private:
  MPI_Group group_ = MPI_GROUP_NULL;
  std::uint64_t freed_ = 0;
};

// The memory of the list of locks that a rank holds: its first few entries lie in the rank's control block, where ranks
// that wait for long read the holders of locks (wait_reports.cpp). This needs no second copy of the entries. Entries of
// released locks stay until they are overwritten; HeldLock::holds_alone() tells them apart. In windows for several
// threads the list is longer and lies on the heap, so peers cannot read it.
//
// Thread safety: one thread at a time. Readers in other processes may see half of a change.

// An allocator of lists that reserve kHeldLocks elements first. A longer list moves to the heap, and stays there.
template <class T>
class HeldLocksMemory {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;

  HeldLocksMemory() = default;
  // `memory`: of kHeldLocks elements.
  explicit HeldLocksMemory(void* memory) : memory_(memory) {}
  T* allocate(std::size_t count) {
    if (memory_ != nullptr && count == epochs::ControlBlock::kHeldLocks) return static_cast<T*>(memory_);
    return static_cast<T*>(::operator new(count * sizeof(T)));
  }
  void deallocate(T* elements, std::size_t /*count*/) {
    if (elements != memory_) ::operator delete(elements);
  }
  bool operator==(const HeldLocksMemory&) const = default;

 private:
  void* memory_ = nullptr;
};

// The traits of the lock table of a window (epochs/protocols/lock_table.hpp).
struct WindowLockTraits {
  // A window of at most this many ranks, whose control words are all mapped, has no global lock: lock_all acquires
  // every rank's lock, at some 10 ns each, and an exclusive lock is one atomic instead of two.
  static constexpr std::size_t kMostRanks = 16;
  template <class T>
  using List = std::vector<T, HeldLocksMemory<T>>;
  struct Mutex {
    BiasedMutex mutex;
    RelaxedFlag threaded;  // without threads it is not locked
  };
  class Guard {
   public:
    explicit Guard(Mutex& of) : held_(of.mutex, std::defer_lock) {
      if (of.threaded) held_.lock();
    }

   private:
    std::unique_lock<BiasedMutex> held_;
  };
};
using WindowLocks = epochs::LockTable<WindowLockTraits>;
using WindowLockStripes = epochs::LockStripes<BiasedMutex>;

// A window may not be locked and exposed at the same time. The epoch states do not show this: the other side is on
// another rank.
constexpr epochs::Violation locked_and_exposed(const char* what, const char* advice) {
  return {epochs::ErrorClass::kRmaConflict, what, advice, "MPI 4.0 section 12.5.3 (3.1: 11.5.3)", true};
}

// The result of a try_ function, the fast path of a call. kNotTaken: nothing has changed, and the function of that name
// without try_ executes or refuses the call. kContended: the call has begun, and its slow path completes it.
enum class FastPath : std::uint8_t { kNotTaken, kDone, kContended };

// Which calls of passive target synchronization, of processes with one thread, may take their fast path.
enum class Fast : std::uint8_t {
  kNone,      // with FARSIDE_CHECK=strict or window statistics
  kLocks,     // the window may queue puts, which an unlock or flush must complete
  kReleases,  // unlocks and flushes, too
};

struct WindowState {
  // The arguments are Window's.
  WindowState(MPI_Group of, std::unique_ptr<Space> memory, std::shared_ptr<const epochs::BarrierSchedule> barriers,
              int global_lock_home, bool threaded, Check check);
  ~WindowState();

  // Guards the epoch state and the lock table if several threads may call, and closes the stripes. Never held while
  // waiting.
  class Guard {
   public:
    explicit Guard(WindowState& window) : held_(window.locks.mutex()) {
      if (window.lock_stripes != nullptr && window.lock_stripes->is_open()) window.close_stripes();
    }

   private:
    WindowLocks::Guard held_;
  };
  Guard guard() { return Guard(*this); }
  // Asks the epoch state whether a call is allowed, which changes it: ask(epoch) returns the broken rule.
  template <class Ask>
  Status allow(Ask&& ask) {
    const auto held = guard();
    return status_of(ask(epoch));
  }
  void close_stripes();
  bool threaded() const { return locks.mutex().threaded; }
  bool holds_in_stripe(int rank) const { return lock_stripes != nullptr && lock_stripes->holds(rank); }

  // Whether fence, post, start, complete and wait may take the fast path: all ranks are on the node.
  bool notifies_fast() const { return fast != Fast::kNone && space->words().all_immediate(); }

  bool has_rank(int rank) const { return rank >= 0 && rank < space->ranks(); }
  Status check_rank(int rank) const;
  // Fails with MPI_ERR_ASSERT if `assert` has other bits than `allowed_bits` (MPI 4.0 section 12.5.5). `allowed`: the
  // names of these bits.
  Status check_assert(int assert, int allowed_bits, const char* allowed);
  // FARSIDE_CHECK=warn: reports a broken rule whose call is carried out. To be called under guard().
  void warn(const Error& broken) const;
  std::string describe_name() const { return name != nullptr ? *name : "(unnamed)"; }  // likewise
  std::string describe_epochs() const {  // likewise: "here all targets are locked (MPI_Win_lock_all)"
    const epochs::ExposureSide& exposure = epoch.exposure();
    return "here " + epoch.describe_access() +
           (exposure.state >= epochs::Exposure::kPosting ? "; " + exposure.describe() : "");
  }

  // Release, or complete, kept puts on the fast path. False: the slow path will return the error.
  bool release_puts() {
    return fast == Fast::kReleases || !space->queued_puts().any() || without_error(space->queued_puts().release());
  }
  bool complete_puts(int rank) {
    return !space->queued_puts().any() || without_error(space->queued_puts().flush(rank));
  }
  bool without_error(Status status) {
    if (status) return true;
    space->queued_puts().report_later(std::move(status));
    return false;
  }

  // For calls that do not wait. Makes progress of the runtime at the first and every 64th call of a thread, unless some
  // thread has made it shortly before. Without this progress, the messages of a program that only flushes would not
  // advance. Do not call it under the guard.
  static void progress_runtime() {
    if (this_thread.runtime_calls++ % Timing::kCallsPerLook == 0) [[unlikely]]
      progress_runtime_now();
  }
  static void progress_runtime_now();

  std::unique_ptr<Space> space;
  ControlMemory control;
  Fast fast;
  bool trusts_locks;                // no threads, and no broken rule is carried out: an exclusive lock is held alone
  ConsecutiveTargets fast_targets;  // without strict checks: those of this node, if their ranks are consecutive
  epochs::EpochState epoch;

  // Of passive target synchronization (passive_target.hpp).
  WindowLocks locks;
  std::unique_ptr<WindowLockStripes> lock_stripes;  // null without threads
  int last_locked = -1;                             // target of the last lock on the fast path
  std::uint64_t* last_lock_word = nullptr;          // its lock word
  std::uint64_t last_lock_value = 0;                // what it held at the release, with no lock present
  bool lock_all_unchecked = false;                  // MPI_MODE_NOCHECK
  std::uint32_t near_hand_offs = 0;                 // how often in a row (NearPlace)
  LostLocks lost_locks;

  // Of active target synchronization (active_target.hpp).
  bool marks_exposure;  // in the lock word; not with FARSIDE_CHECK=off
  epochs::CompletionCount completions;
  std::uint64_t barrier_word = 0;  // of the last barrier (epochs::BarrierWord)
  std::shared_ptr<const epochs::BarrierSchedule> barrier_schedule;
  KnownGroup last_posted, last_started;
  LossTimeout wait_timeout;  // of the wait for the last post's completes
  // ControlMemory::interruptions() at the last post, and when the last barrier was entered.
  std::uint32_t interruptions_at_post = 0, interruptions_at_barrier;

  std::unique_ptr<NotificationCounters> notification_counters;  // null before MPIX_Win_set_num_notify

  // The target of the last deferred lock, if a lost peer has ended it after MPI_Win_lock had returned. Its unlock does
  // nothing.
  int failed_deferral = MPI_PROC_NULL;

  MPI_Group group;                           // the window's; the handle is freed with the window
  epochs::EpochState::Report report_broken;  // FARSIDE_CHECK=warn, else empty
  std::unique_ptr<std::string> name;         // that the program has given, or null; guarded by guard()

  std::list<ControlMemory::Operation> unanswered;  // reads for reports of long waits; guarded by guard()

  // Of calls.cpp; null without them.
  std::unique_ptr<Strict> strict;
  std::unique_ptr<WindowStatistics> statistics;
};

}  // namespace farside::pmpi
