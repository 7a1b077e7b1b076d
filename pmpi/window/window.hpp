// SPDX-License-Identifier: BSD-3-Clause
// The window behind a handle: epoch state, lock table, control words and memory of one MPI_Win that farside carries.
// Each function from put() to detach() is one MPI call: it checks the arguments, asks the epoch state, acts, and
// returns an Outcome, which entries_*.cpp turn into MPI's return code.
//
// Thread safety: any thread, after expect_threads() or if the window was made with `threaded`. Operations and flushes
// on the fast path read the epoch state without the guard; all other calls take it for a few instructions. Errors: the
// MPI error class in the Fault. Cost in remote operations: epochs/lock.md,
// epochs/synchronization.md.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock_stripes.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "pmpi/check/strict.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/window/dead_ranks.hpp"
#include "pmpi/window/held_locks.hpp"
#include "pmpi/window/hints.hpp"
#include "pmpi/window/members.hpp"
#include "pmpi/window/synchronization.hpp"
#include "transport/base/mutex.hpp"
#include "transport/base/settings.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside {
class Fabric;
}

namespace farside::pmpi {

class StagedBuffer;

// Arguments of operations. Counts are 64 bits for the large-count calls.
struct LocalBuffer {
  void* address;
  std::int64_t count;
  MPI_Datatype type;
};
struct RemoteBuffer {
  int rank;
  MPI_Aint displacement;  // in units of the target's displacement unit
  std::int64_t count;
  MPI_Datatype type;
  // Of a call with a request: the counter of its operations, and the place for their number in FARSIDE_CHECK=strict.
  Outstanding* own = nullptr;
  std::uint64_t* watched = nullptr;
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
    explicit Guard(Mutex& of) : held_(of.threaded ? &of.mutex : nullptr) {
      if (held_ != nullptr) held_->lock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      if (held_ != nullptr) held_->unlock();
    }

   private:
    BiasedMutex* held_;
  };
};
using WindowLocks = epochs::LockTable<WindowLockTraits>;
using WindowLockStripes = epochs::LockStripes<BiasedMutex>;

class Window {
 public:
  struct Attributes {
    void* base = nullptr;
    MPI_Aint size = 0;
    int displacement_unit = 1;
    int flavor = 0;
    int model = MPI_WIN_UNIFIED;
  };
  // Owns its arguments. The units of the space are the displacement units of the ranks. `barriers`: the schedule of
  // this rank, which must match the schedules of the other ranks. `global_lock_home` is the rank of the global lock,
  // the same on all ranks, or WindowLocks::kNoGlobalLock. `logs` is the memory of the logs with FARSIDE_CHECK=strict
  // (pmpi/check/log_space.hpp), else null. `id` is the same on all ranks, and unique.
  Window(MPI_Win handle, MPI_Group group, const Attributes& attributes, std::unique_ptr<Space> space,
         std::shared_ptr<const epochs::BarrierSchedule> barriers, int global_lock_home, Hints hints, bool threaded,
         Check check, std::unique_ptr<Space> logs, std::uint64_t id);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  MPI_Win handle() const { return handle_; }

  // For calls that do not wait. Makes progress of the runtime at the first and every 64th call of a thread, unless some
  // thread has made it shortly before. Without this progress, the messages of a program that only flushes would not
  // advance. Do not call it under the guard.
  static void progress_runtime();

  // The fast path of the most frequent calls (window_fast_path.hpp). True: the call is complete. False: nothing has
  // changed, and the function of that name below executes or refuses the call.
  bool try_put(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_get(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  bool try_fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                        MPI_Op op);
  [[gnu::always_inline]] bool try_compare_and_swap(const void* origin, const void* compare, void* result,
                                                   MPI_Datatype type, int rank, MPI_Aint displacement);
  [[gnu::always_inline]] bool try_flush(int rank);
  // kContended: other processes are in the lock word. lock_contended() completes the call. An unlock has departed; the
  // previous value of the word is in `before`, and unlock_contended() completes the call, with the lock in `lock`.
  enum class FastPath : std::uint8_t { kNotTaken, kDone, kContended };
  bool threaded() const { return locks_.mutex().threaded; }
  bool has_fast_locks() const { return fast_locks_; }
  bool has_fast_releases() const { return fast_releases_; }
  bool has_fast_notifications() const { return fast_notifications_; }
  [[gnu::always_inline]] FastPath try_lock(int lock_type, int rank, int assert);
  [[gnu::always_inline]] FastPath try_unlock(int rank, epochs::HeldLock& lock, std::uint64_t& before);
  // The same for a lock that a stripe holds (epochs/protocols/lock_stripes.hpp), in programs with threads.
  [[gnu::always_inline]] bool lock_in_stripe(int lock_type, int rank, int assert);
  [[gnu::always_inline]] FastPath unlock_in_stripe(int rank, epochs::HeldLock& lock, std::uint64_t& before);
  // Post, start, complete and wait with one peer on the node, the same as in the last epoch of that kind. Start and
  // wait spin for about a microsecond.
  bool try_post(MPI_Group group, int assert);
  bool try_start(MPI_Group group, int assert);
  bool try_complete();
  bool try_wait();
  // A fence without assertions among ranks of the node. kContended: the fence is not over, and continue_fence() with
  // `word` waits for its end.
  FastPath try_fence(int assert, std::uint64_t& word);
  Outcome continue_fence(std::uint64_t word) { return run_barrier(word); }
  Outcome lock_contended(int lock_type, int rank);
  Status unlock_contended(const epochs::HeldLock& lock, std::uint64_t before);

  // Communication (MPI 4.0 section 12.3).
  Outcome put(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, true); }
  Outcome get(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, false); }
  // `result` null: plain accumulate. MPI_NO_OP ignores the origin.
  Outcome accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  Outcome fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op op);
  Outcome compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                           MPI_Aint displacement);
  // The request-based calls: begin_request_operation() checks whether they are allowed now and makes the counter of the
  // operation (null if the operation is complete when it returns); end_request_operation() follows the operation;
  // abandon_request() replaces it for a request that was not made, or that the program has freed.
  Outcome begin_request_operation(int rank, std::unique_ptr<Outstanding>& own);
  void end_request_operation(int rank);
  // The program has completed the request. `watched`: the number of its operation in FARSIDE_CHECK=strict, or 0.
  Outcome request_completed(std::uint64_t watched) {
    return strict_ == nullptr || watched == 0 ? Outcome() : strict_->request_completed(watched);
  }
  // Another thread may report a request that it has completed while this one frees the window: MPI_Win_free waits until
  // none holds the window.
  void hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() { holds_.fetch_sub(1, std::memory_order_release); }
  bool is_held() const { return holds_.load(std::memory_order_acquire) != 0; }
  void abandon_request(int rank, std::unique_ptr<Outstanding> own) { space_->abandon(rank, std::move(own)); }

  // Synchronization (MPI 4.0 section 12.5).
  Outcome fence(int assert);
  Outcome post(MPI_Group group, int assert);
  Outcome start(MPI_Group group, int assert);
  Outcome complete();
  Outcome wait();
  Outcome test(int* flag);
  Outcome lock(int lock_type, int rank, int assert);
  Outcome unlock(int rank);
  Outcome lock_all(int assert);
  Outcome unlock_all();
  Outcome flush(int rank);
  Outcome flush_all();
  // Local completion is completion at the target, but for FARSIDE_CHECK=strict, which distinguishes them.
  Outcome flush_local(int rank) { return strict_ == nullptr ? flush(rank) : flush_local_strictly(rank); }
  Outcome flush_local_all() { return strict_ == nullptr ? flush_all() : flush_local_all_strictly(); }
  Outcome sync();

  // Whether the window may be freed now. end() is collective: after it all operations of all ranks are complete or have
  // failed, and the caller frees the handle and destroys the window.
  Outcome check_free();
  Outcome end();

  // Dynamic memory (MPI 4.0 section 12.2.4).
  Outcome attach(const void* base, MPI_Aint size);
  Outcome detach(const void* base);

  // Shared memory (MPI 4.1 section 12.2.3); int and MPI_Aint units. Local.
  template <class Unit>
  Outcome shared_query(int rank, MPI_Aint* size, Unit* unit, void** base) const {
    Space::MappedData found;
    if (Outcome o = find_mapped(rank, found); !o) return o;
    *size = static_cast<MPI_Aint>(found.bytes);
    *unit = static_cast<Unit>(found.unit);
    *base = found.base;
    return {};
  }

  // Sets the name that the program has given to the window, for messages and statistics.
  void named(const char* name);

  // Hints (MPI 4.0 section 12.2.7).
  Outcome set_info(MPI_Info info);
  Outcome get_info(MPI_Info* info);
  // How this rank reaches the others: names of routes, with commas between them.
  std::string routes() const;
  // The endpoint by which this rank reaches some of the others; null if it needs none.
  const Fabric* fabric() const;
  // The name of the endpoint's device, or the names of its devices with a comma between them; "none" without an
  // endpoint.
  std::string devices() const;
  int ranks() const { return space_->ranks(); }

  // The group of the window, the caller's to free.
  Outcome group(MPI_Group* group) const;
  // One of the five predefined attributes, as MPI_Win_get_attr gives it; null for other keys.
  void* predefined_attribute(int key);

  // From now on several threads may use windows at once: with guards, and without deferred locks. Precondition: no
  // thread is in a call on this window.
  void expect_threads();
  // How often in a row a lock may be handed off within the node (NearPlace). To be called before the first lock.
  void allow_near_hand_offs(std::uint32_t most) { near_hand_offs_ = most; }

  // Reports of FARSIDE_HANG (wait_reasons.hpp). `what` says what a call waits for, and completes "has waited in
  // MPI_Win_lock". `more` says what is known of the ranks concerned, and begins with a space, comma or semicolon. The
  // awaited_ functions read words of other ranks. They may take half a second for each rank that does not answer over
  // the fabric. The first message to a rank also waits for its connection.
  struct Awaited {
    std::string what;
    std::string more;
  };
  std::string report_wait(const char* call, std::chrono::seconds waited, const Awaited& awaited);
  // Operations that are not acknowledged. `target`: that of the call, where it has one.
  Awaited awaited_by_operations(int target);

  // Logs the fault in one line, calls the window's error handler, and returns the return code of the call.
  int raise(const CallSite& call, const Fault& fault);
  // The same when the runtime has freed the handle: `handler` is called with another one.
  int raise_after_free(const CallSite& call, const Fault& fault, MPI_Errhandler handler);

 private:
  void log_fault(const CallSite& call, const Fault& fault);
  bool try_combine(const void* origin, void* result, std::int64_t count, MPI_Datatype type, int rank,
                   MPI_Aint displacement, MPI_Op op);
  // `bytes` bytes at a displacement in a mapped target, or null if an operation may not access them on the fast path.
  struct FastPlace {
    const NodeTarget* target;
    std::byte* at;
  };
  [[gnu::always_inline]] FastPlace fast_place(int rank, MPI_Aint displacement, std::size_t bytes) const;
  Space::Access access(int rank) const;

  // Guards the epoch state and the lock table if several threads may call, and closes the stripes. Never held while
  // waiting.
  class Guard {
   public:
    explicit Guard(Window& window) : held_(window.locks_.mutex()) {
      if (window.lock_stripes_ != nullptr && window.lock_stripes_->is_open()) window.close_stripes();
    }

   private:
    WindowLocks::Guard held_;
  };
  Guard guard() { return Guard(*this); }
  // Checks whether an operation on this rank is allowed now. `updates`: it may change the window there.
  Outcome check_operation(int rank, bool updates);
  // Whether an epoch of a fence or start allows operations on this rank; the rank then awaits the end of the epoch.
  // Also false in an epoch in which some rank has asserted MPI_MODE_NOPUT.
  bool in_active_epoch(int rank) const { return epoch_.allows_fast_operation(rank) && !epoch_.allows_fast_flush(rank); }
  // Release, or complete, kept puts on the fast path. False: the slow path will return the error.
  bool release_puts() { return fast_releases_ || !space_->keeps_puts() || without_error(space_->release_puts()); }
  bool complete_puts(int rank) { return !space_->keeps_puts() || without_error(space_->complete_puts(rank)); }
  bool without_error(Status status) {
    if (status) return true;
    space_->report_puts_later(std::move(status));
    return false;
  }
  // A barrier that exchanges flags of the call (epochs::BarrierWord). A fault if they differ between ranks.
  Outcome barrier(std::uint8_t flags);
  // The same in two steps: the word that the peers read, and the barrier.
  std::uint64_t enter_barrier(std::uint8_t flags) {
    return epochs::BarrierWord::make(++barriers_, flags, std::exchange(barrier_flags_, flags));
  }
  Outcome run_barrier(std::uint64_t word);
  // Runs a protocol of the lock table to its end, also after failures of its operations, and returns the first error.
  // `peer`: the target, for messages.
  Status run_to_end(auto& protocol, int peer = 0);
  // Locks that ranks have died with (epochs/lock.md, Failures).
  struct LockLook;
  std::optional<Error> find_lost(const epochs::AwaitedLock& lock, LockLook& look);
  Status declare_lost(const epochs::AwaitedLock& lock, epochs::LockType type, const Error& why);
  Status check_not_lost(int rank, epochs::LockType type);
  // Acquires a lock by the lock table, and waits until it is held. `taken`: what the lock word held when a message took
  // the ticket of the lock, if one did.
  Outcome acquire(epochs::HeldLock& lock, const std::optional<std::uint64_t>& taken = {});
  Outcome acquire_or_defer(epochs::HeldLock lock);
  epochs::NearPlace near_place(const epochs::HeldLock& lock) const;
  // Calls attempt() whenever the lock of the rank, whose word is mapped, is free, until attempt() does not return
  // kContended or a limit is reached.
  template <class Attempt>
  FastPath acquire_without_ticket(int lock_type, int rank, Attempt&& attempt);
  // A lock may be deferred, to travel with its operations and its release in one message (MPI 4.0 section 12.5.3 lets
  // MPI_Win_lock return before the lock is held): one lock of the process, as the lock table says.
  bool may_defer(const epochs::HeldLock& lock) const;
  static Outcome acquire_deferred() { return deferring_ != nullptr ? deferring_->acquire_deferred_lock() : Outcome(); }
  Outcome acquire_deferred_lock();
  // Unlocks a lock that is still deferred. `over`: the epoch was one message; else the lock is held now.
  Outcome unlock_deferred(epochs::HeldLock& lock, bool& over);
  // Sets the exposure mark of a post in the own lock word, which locks of this rank find. A fault if this rank is
  // locked.
  Outcome mark_exposed();
  Outcome end_exposure(epochs::Call call);
  Status complete_lost();
  // What synchronization calls wait for. `next`: the rank whose lock a lock_all acquires now, in a window without a
  // global lock.
  Awaited awaited_lock(int target, epochs::LockType type);
  Awaited awaited_lock_all(int next);
  // `peer`, `count`: as Barrier::awaits() and BarrierWord::count().
  Awaited awaited_in_barrier(int peer, std::uint64_t count);
  Awaited awaited_posts(std::span<const int> missing);
  Awaited awaited_completes(std::size_t missing, std::span<const int> origins);
  // Control words of ranks; those that cannot be read within a short time have no value.
  struct WordOf {
    int rank;
    std::uint32_t word;
  };
  std::vector<std::optional<std::uint64_t>> read_words(std::span<const WordOf> words);
  std::vector<int> exclusive_holders(int target);
  std::string describe_failure(int rank);
  std::string describe_failure(std::span<const int> ranks);
  // The synchronization calls without window statistics. do_lock() and do_unlock() try the fast path first.
  Outcome do_lock(int lock_type, int rank, int assert);
  // `lock`: the one that is released, if the call succeeds.
  Outcome do_unlock(int rank, epochs::HeldLock& lock);
  // The lock word of a target that is mapped and whose operations are complete when they return; else null.
  std::uint64_t* lock_word(int rank) const { return space_->fast_control_word(rank, epochs::TargetLock::kWord); }
  std::uint64_t* fast_lock_word(int rank);  // keeps the last one
  // Makes the lock stripes of a window for several threads. Does nothing with FARSIDE_CHECK=strict, which must see each
  // lock, or if the control words of the node's ranks are not mapped.
  void use_stripes();
  // Opens the stripes for a lock of the rank; returns whether it has.
  bool open_stripes(int rank);
  void close_stripes();
  bool holds_in_stripe(int rank) const { return lock_stripes_ != nullptr && lock_stripes_->holds(rank); }
  static int only_member(MPI_Group group, const KnownGroup& known);
  Status hand_off(const epochs::HeldLock& lock, std::uint64_t before);
  Outcome lock_slow(int lock_type, int rank, int assert);
  Outcome unlock_slow(int rank, epochs::HeldLock& lock);
  Outcome end_epochs();
  Outcome do_fence(int assert);
  Outcome do_post(MPI_Group group, int assert);
  Outcome do_start(MPI_Group group, int assert);
  Outcome do_complete();
  Outcome do_wait();
  Outcome do_lock_all(int assert);
  Outcome do_unlock_all();
  Outcome do_flush(int rank);
  Outcome do_flush_all();
  // Executes a call and, if the window has statistics and the call succeeds, counts it by enter().
  template <class Call, class Enter>
  Outcome counted(Call&& call, Enter&& enter) {
    if (statistics_ == nullptr) [[likely]]
      return call();
    const WindowStatistics::Moment begun = statistics_->begin();
    Outcome outcome = call();
    if (outcome) (void)without_bad_alloc([&] { return enter(begun), Status(); });  // the call itself has succeeded
    return outcome;
  }
  // The same for an operation that is no load or store.
  template <class Call>
  Outcome operated(int rank, Counted what, std::uint64_t bytes, Call&& call) {
    if (statistics_ == nullptr || space_->mapped(rank) != nullptr) [[likely]]
      return call();
    const WindowStatistics::Moment begun = WindowStatistics::begin_operation();
    Outcome outcome = call();
    if (outcome) (void)without_bad_alloc([&] { return statistics_->operated(rank, what, bytes, begun), Status(); });
    return outcome;
  }
  // Computes the offset `origin_at` of element 0 in the target's data, or a range fault if the `count` elements of
  // `type` are not within them. The offset is negative if the layout has a positive lower bound.
  Outcome locate(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const;
  // The same in a dynamic window, where displacements are addresses.
  Outcome locate_attached(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const;
  Outcome check_rank(int rank) const;
  // Fails with MPI_ERR_ASSERT if `assert` has other bits than `allowed_bits` (MPI 4.0 section 12.5.5). `allowed`: the
  // names of these bits.
  Outcome check_assert(int assert, int allowed_bits, const char* allowed);
  // FARSIDE_CHECK=warn: notes a broken rule whose call is carried out. To be called under guard().
  void warn(const Fault& fault);
  std::string name() const;  // likewise
  // Finds the memory that MPI_Win_shared_query means by `rank`, which may be MPI_PROC_NULL.
  Outcome find_mapped(int rank, Space::MappedData& found) const;
  Outcome flush_local_strictly(int rank);
  Outcome flush_local_all_strictly();
  static void progress_runtime_now();
  Outcome transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put);
  // The same for the most frequent arguments, with few checks. Nothing, if transfer() must make all of them.
  std::optional<Outcome> transfer_plain(const LocalBuffer& origin, const RemoteBuffer& target, bool put);
  // The same, accumulate() and compare_and_swap() with buffers in the memory of a GPU; nothing if none is
  // (window_devices.cpp).
  std::optional<Outcome> stage_transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put);
  std::optional<Outcome> stage_accumulate(const LocalBuffer& origin, const LocalBuffer* result,
                                          const RemoteBuffer& target, MPI_Op op);
  std::optional<Outcome> stage_compare_and_swap(const void* origin, const void* compare, void* result,
                                                MPI_Datatype type, int rank, MPI_Aint displacement);
  void keep_for_strict(StagedBuffer copy);
  // The functions from here to combine() move or combine data without checks, at a byte offset in the target's data.
  Outcome move_bytes(void* here, const RemoteBuffer& target, std::uint64_t offset, std::size_t bytes, bool put);
  Outcome move(const LocalBuffer& origin, const Datatype& origin_type, const RemoteBuffer& target,
               const Datatype& target_type, std::int64_t at, bool put);
  std::optional<Outcome> move_ranges(const LocalBuffer& origin, const Datatype& origin_type, const RemoteBuffer& target,
                                     const Datatype& target_type, std::int64_t at, bool put);
  std::optional<Outcome> combine_ranges(const std::byte* origin, std::byte* fetched, const std::optional<Ranges>& from,
                                        const RemoteBuffer& target, const Datatype& target_type, std::int64_t at,
                                        ReduceOp op, BasicType element);
  Outcome combine(const LocalBuffer& origin, const Datatype& origin_type, const LocalBuffer* result,
                  const Datatype& result_type, const RemoteBuffer& target, const Datatype& target_type, std::int64_t at,
                  ReduceOp op, BasicType element);
  // With FARSIDE_CHECK=strict: refuses an operation under a lock_all on a rank that is exposed by a post (MPI 4.0
  // section 12.5.3).
  Outcome check_not_exposed(int rank);
  // Issues an operation that strict watches.
  template <class Issue>
  Outcome watched(Strict::Operation operation, Issue&& issue_it);
  Outcome translate(MPI_Group group, Members& members) const;
  // The members of a group, kept in `known` and, with several threads, copied to `own`.
  Outcome members_of(MPI_Group group, KnownGroup& known, Members& own, std::span<const int>& ranks);
  Status notify(epochs::Notify<ControlMemory>::What what, std::span<const int> members);

  MPI_Win handle_;
  MPI_Group group_;
  Attributes attributes_;
  std::unique_ptr<Space> space_;
  ControlMemory control_;
  Hints hints_;
  bool fast_path_;                   // no strict checks
  bool fast_locks_;                  // and no window statistics: locks may take the fast path
  bool fast_releases_;               // and the window never keeps puts: unlocks and flushes may take the fast path
  bool fast_notifications_;          // as fast_locks_, and all ranks on the node: fence, post, start, complete, wait
  bool trusts_locks_;                // no threads, and no broken rule is carried out: an exclusive lock is held alone
  ConsecutiveTargets fast_targets_;  // with fast_path_: the targets of this node, if their ranks are consecutive

  epochs::EpochState epoch_;
  WindowLocks locks_;
  std::unique_ptr<WindowLockStripes> lock_stripes_;  // null without threads
  struct LostLock {
    epochs::AwaitedLock lock;
    epochs::LockType by;  // the lock that waited for it
    Error why;
  };
  std::vector<LostLock> lost_locks_;  // guarded by guard()
  DeadRanks dead_ranks_;
  std::uint32_t near_hand_offs_ = 0;
  epochs::CompletionCount completions_;
  KnownGroup last_posted_, last_started_;
  LossTimeout wait_timeout_;  // of the wait for the last post's completes
  // Space::interruptions() at the last post, and when the last barrier was entered.
  std::uint32_t interruptions_at_post_ = 0, interruptions_at_barrier_ = space_->first_interruptions();
  std::uint64_t barriers_ = 0;
  int last_locked_ = -1;                       // target of the last lock on the fast path
  std::uint64_t* last_lock_word_ = nullptr;    // its lock word
  std::uint64_t last_lock_value_ = 0;          // what it held at the release, with nobody present
  static inline Window* deferring_ = nullptr;  // the window of the process whose lock table has the deferred lock
  // Calls of progress_runtime() by this thread.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit unsigned calls_ = 0;
  std::atomic<std::uint32_t> holds_{0};
  bool lock_all_unchecked_ = false;               // MPI_MODE_NOCHECK
  bool marks_exposure_;                           // in the lock word; not with FARSIDE_CHECK=off
  epochs::EpochState::Report report_broken_;      // FARSIDE_CHECK=warn, else empty
  std::unique_ptr<std::string> name_;             // guarded by guard(); null: none
  std::unique_ptr<Strict> strict_;                // FARSIDE_CHECK=strict, else null
  std::uint8_t barrier_flags_ = 0;                // of the last barrier (epochs/protocols/barrier.hpp)
  std::unique_ptr<WindowStatistics> statistics_;  // for FARSIDE_STATS and FARSIDE_TRACE, else null
  std::shared_ptr<const epochs::BarrierSchedule> barrier_schedule_;
};

}  // namespace farside::pmpi

#include "pmpi/window/window_fast_path.hpp"
