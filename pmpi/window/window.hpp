// SPDX-License-Identifier: BSD-3-Clause
// The window behind a handle: epoch state, control words and memory of one MPI_Win that farside carries. Each public
// function is one MPI call: it checks arguments, asks the epoch, acts, and says what went wrong; entries_*.cpp turn
// that into MPI's return codes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "pmpi/check/strict.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/window/hints.hpp"
#include "pmpi/window/members.hpp"
#include "transport/base/settings.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

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
  // Of a call with a request: where its operations count, and where FARSIDE_CHECK=strict says which operation it is.
  Outstanding* own = nullptr;
  std::uint64_t* watched = nullptr;
};

// What the lock table of a window is made of (epochs/protocols/lock_table.hpp).
struct WindowLockTraits {
  // Up to so many ranks whose control words are all mapped, lock_all acquires every rank's lock, at some 10 ns each:
  // then an exclusive lock is one atomic, and not one more at the global lock.
  static constexpr std::size_t kMostRanks = 16;
  template <class T>
  using List = std::vector<T>;
  struct Mutex {
    std::mutex mutex;
    RelaxedFlag threaded;  // without threads it is not locked
  };
  struct Guard {
    explicit Guard(Mutex& of) : held(of.threaded ? std::unique_lock(of.mutex) : std::unique_lock<std::mutex>()) {}
    std::unique_lock<std::mutex> held;
  };
};
using WindowLocks = epochs::LockTable<WindowLockTraits>;

class Window {
 public:
  struct Attributes {
    void* base = nullptr;
    MPI_Aint size = 0;
    int displacement_unit = 1;
    int flavor = 0;
    int model = MPI_WIN_UNIFIED;
  };
  // Owns what it is given. `displacement_units` has one per rank, or a single one if all are equal; `global_lock_home`
  // is the rank of the global lock that lock_all passes (epochs/protocols/lock.hpp), alike on all ranks, or
  // WindowLocks::kNoGlobalLock; `logs`, with FARSIDE_CHECK=strict, where its logs lie (pmpi/check/log_space.hpp). `id`:
  // the same on all ranks, and of no other window.
  Window(MPI_Win handle, MPI_Group group, const Attributes& attributes, std::vector<int> displacement_units,
         std::unique_ptr<Space> space, int global_lock_home, Hints hints, bool threaded, Check check,
         std::unique_ptr<Space> logs, std::uint64_t id);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  MPI_Win handle() const { return handle_; }

  // The fast path of the calls that programs make all the time (window_fast_path.hpp): true if all of the call was
  // done, false if nothing was; then the call below of that name does it, or says what is wrong.
  bool try_put(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_get(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  bool try_fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                        MPI_Op op);
  bool try_compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                            MPI_Aint displacement);
  bool try_flush(int rank);
  // A lock's one atomic may find that others are in the way, its release that others wait: then it is neither done nor
  // not begun, and lock_contended() or hand_off_lock() goes on with what they found in the lock word.
  enum class FastPath : std::uint8_t { kNotTaken, kDone, kContended };
  bool has_fast_locks() const { return fast_locks_; }
  bool has_fast_notifications() const { return fast_notifications_; }
  FastPath try_lock(int lock_type, int rank, int assert, std::uint64_t& before);
  FastPath try_unlock(int rank, std::uint64_t& before);
  // Post, start, complete and wait with one peer, the same as last time, which is on the node: it is given a moment to
  // come.
  bool try_post(MPI_Group group, int assert);
  bool try_start(MPI_Group group, int assert);
  bool try_complete();
  bool try_wait();
  // A fence without assertions among ranks of the node. kContended: it is not over, and go_on_with_fence() with the
  // word given waits for it.
  FastPath try_fence(int assert, std::uint64_t& word);
  Outcome go_on_with_fence(std::uint64_t word) { return meet(word); }
  Outcome lock_contended(int lock_type, int rank, std::uint64_t before);
  Status hand_off_lock(std::uint64_t before);

  // Communication (MPI 4.0 section 12.3).
  Outcome put(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, true); }
  Outcome get(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, false); }
  // `result` null: plain accumulate. With MPI_NO_OP the origin is not looked at.
  Outcome accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  Outcome fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op op);
  Outcome compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                           MPI_Aint displacement);
  // For the request-based calls: before the operation, whether they are allowed now, and where the operation is to
  // count (null where it is complete when it returns); behind it, what is left to do; and for a request that nobody
  // will ask for, or that was never made.
  Outcome begin_request_operation(int rank, std::unique_ptr<Outstanding>& own);
  void end_request_operation(int rank);
  // The user has heard that the request is complete. `watched`: which operation it is to FARSIDE_CHECK=strict, 0 if
  // none.
  Outcome request_completed(std::uint64_t watched) {
    return strict_ == nullptr || watched == 0 ? Outcome() : strict_->request_completed(watched);
  }
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
  // When an operation's buffers are free it has arrived: local completion is completion; only strict tells them apart.
  Outcome flush_local(int rank) { return strict_ == nullptr ? flush(rank) : flush_local_strictly(rank); }
  Outcome flush_local_all() { return strict_ == nullptr ? flush_all() : flush_local_all_strictly(); }
  Outcome sync();

  // Whether it may be freed now. Then end(), collective: all operations everywhere are complete or have failed; what
  // remains is to free the handle and destroy this.
  Outcome check_free();
  Outcome end();

  // Dynamic memory (MPI 4.0 section 12.2.4).
  Outcome attach(const void* base, MPI_Aint size);
  Outcome detach(const void* base);

  // Shared memory (MPI 4.0 section 12.2.3); int and MPI_Aint units.
  template <class Unit>
  Outcome shared_query(int rank, MPI_Aint* size, Unit* unit, void** base) const {
    if (Outcome o = check_shared(rank); !o) return o;
    const int owner = shared_rank(rank);
    *size = static_cast<MPI_Aint>(space_->bytes(owner));
    *unit = displacement_unit(owner);
    *base = space_->address(owner);
    return {};
  }

  // Hints (MPI 4.0 section 12.2.7).
  Outcome set_info(MPI_Info info);
  Outcome get_info(MPI_Info* info);

  // The group of the window, the caller's to free.
  Outcome group(MPI_Group* group) const;
  // One of the five predefined attributes, as MPI_Win_get_attr gives it; null for other keys.
  void* predefined_attribute(int key);

  // From now on several threads may use windows at once: no fast paths any more, and no lock is deferred. No thread is
  // in a call on this window now.
  void expect_threads();

  // Tells the user, in one line, and the window's error handler; returns what the call returns.
  int raise(const CallSite& call, const Fault& fault);

 private:
  bool try_combine(const void* origin, void* result, std::int64_t count, MPI_Datatype type, int rank,
                   MPI_Aint displacement, MPI_Op op);
  std::byte* fast_address(int rank, MPI_Aint displacement, std::size_t bytes) const;
  Space::Access access(int rank) const;

  // Held around the epoch state and the lock table if several threads may call; released while waiting.
  WindowLocks::Guard guard() { return locks_.guard(); }
  // May an operation go to this rank now? `updates`: it may change the window there.
  Outcome begin_operation(int rank, bool updates);
  // Says to the others, and hears, what it is for (epochs::BarrierWord). A fault, too, if they came for something else.
  Outcome barrier(std::uint8_t said);
  // The same in two steps: what the others are to read, and the barrier.
  std::uint64_t enter_barrier(std::uint8_t said) {
    return epochs::BarrierWord::make(++barriers_, said, std::exchange(said_in_barrier_, said));
  }
  Outcome meet(std::uint64_t word);
  // Runs a protocol of the lock table to its end, also if an operation of it fails: the first error. `peer`: for a
  // report.
  Status run_out(auto& protocol, int peer = 0);
  // Acquires a lock by the lock table, and waits until it is held. `before`: what the lock word held, if its ticket was
  // taken already.
  Outcome acquire(epochs::HeldLock& lock, std::optional<std::uint64_t> before);
  Outcome keep_lock(epochs::HeldLock lock, std::optional<std::uint64_t> before);
  // A lock may be deferred, to travel with its operations and its release in one message (MPI 4.0 section 12.5.3 lets
  // MPI_Win_lock return before the lock is held): one lock of the process, as the lock table says.
  bool may_defer(const epochs::HeldLock& lock) const;
  static Outcome acquire_deferred() { return deferring_ != nullptr ? deferring_->acquire_deferred_lock() : Outcome(); }
  Outcome acquire_deferred_lock();
  // The unlock of a lock that is still deferred. `over`: the epoch was one message; else the lock is held now.
  Outcome unlock_deferred(epochs::HeldLock& lock, bool& over);
  // The mark of an exposure by a post, for who locks this rank meanwhile: set, unless somebody holds such a lock.
  Outcome expose();
  Outcome end_exposure(epochs::Call call, std::size_t origins);
  // Synchronization calls without their window statistics; lock and unlock by the fast path, if that can be, and
  // otherwise.
  Outcome do_lock(int lock_type, int rank, int assert);
  Outcome do_unlock(int rank);
  std::uint64_t* fast_lock_word(int rank);
  static int only_member(MPI_Group group, const KnownGroup& known);
  void end_fast_lock();
  Status hand_off(const epochs::HeldLock& lock, std::uint64_t before);
  Outcome lock_slow(int lock_type, int rank, int assert);
  Outcome unlock_slow(int rank);
  Outcome do_fence(int assert);
  Outcome do_post(MPI_Group group, int assert);
  Outcome do_start(MPI_Group group, int assert);
  Outcome do_complete();
  Outcome do_wait();
  Outcome do_lock_all(int assert);
  Outcome do_unlock_all();
  Outcome do_flush(int rank);
  Outcome do_flush_all();
  // Does a call and, if the window has window statistics, enters it there when it has succeeded.
  template <class Call, class Enter>
  Outcome counted(Call&& call, Enter&& enter) {
    if (statistics_ == nullptr) [[likely]]
      return call();
    const WindowStatistics::Moment begun = statistics_->begin();
    Outcome outcome = call();
    if (outcome) enter(begun);
    return outcome;
  }
  // The same for an operation, unless it is a load or store.
  template <class Call>
  Outcome operated(int rank, Counted what, std::uint64_t bytes, Call&& call) {
    if (statistics_ == nullptr || space_->mapped(rank) != nullptr) [[likely]]
      return call();
    const WindowStatistics::Moment begun = WindowStatistics::begin_operation();
    Outcome outcome = call();
    if (outcome) statistics_->operated(rank, what, bytes, begun);
    return outcome;
  }
  // Offset in the target's data of what `count` elements of `type` at the displacement cover from their first byte,
  // or a range fault. `origin_at` is where element 0 lies: it may be negative where the layout begins later.
  Outcome locate(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const;
  // The same in a dynamic window, where displacements are addresses.
  Outcome locate_attached(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const;
  Outcome check_rank(int rank) const;
  Outcome check_shared(int rank) const;
  // Whose memory a query for `rank` means.
  int shared_rank(int rank) const;
  Outcome flush_local_strictly(int rank);
  Outcome flush_local_all_strictly();
  // A program that calls nothing but flushes must still move its messages; every so often.
  void look_after_runtime() { look_after_runtime(calls_); }
  static void look_after_runtime(std::atomic<std::uint64_t>& calls);
  static void look_after_runtime_now();
  Outcome transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put);
  // Both without checks, at a place in the target's data.
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
  // With FARSIDE_CHECK=strict: what a lock_all does to a rank that is exposed by a post is refused (MPI 4.0 section
  // 12.5.3).
  Outcome check_not_exposed(int rank);
  // Issues an operation that strict watches.
  template <class Issue>
  Outcome watched(Strict::Operation operation, Issue&& issue_it);
  Outcome translate(MPI_Group group, Members& members) const;
  // The members of a group, in `known` or, with several threads, in `own`.
  Outcome members_of(MPI_Group group, KnownGroup& known, Members& own, std::span<const int>& ranks) const;
  Status notify(epochs::Notify<ControlMemory>::What what, std::span<const int> members);
  int displacement_unit(int rank) const { return displacement_units_[static_cast<unsigned>(rank) & unit_mask_]; }

  MPI_Win handle_;
  MPI_Group group_;
  Attributes attributes_;
  std::vector<int> displacement_units_;
  unsigned unit_mask_;       // of the rank: 0 if all have the same
  std::unique_ptr<Space> space_;
  ControlMemory control_;
  Hints hints_;
  RelaxedFlag threaded_;
  RelaxedFlag fast_path_;   // the fast path are open: one thread, and no strict checks
  RelaxedFlag fast_locks_;  // and nobody wants window statistics of locks: their entry points may take the fast path
  RelaxedFlag fast_notifications_;  // and all ranks are on the node: so may fence, post, start, complete and wait

  epochs::EpochState epoch_;
  WindowLocks locks_;
  epochs::CompletionCount completions_;
  KnownGroup last_posted_, last_started_;
  std::uint64_t barriers_ = 0;
  int fast_target_ = -1;                    // of the last direct lock
  std::uint64_t* fast_word_ = nullptr;      // its lock word
  static inline Window* deferring_ = nullptr;  // whose lock table has the deferred lock
  // Calls that look after the runtime every so often: flushes by the fast path, and others.
  std::atomic<std::uint64_t> fast_flushes_{0}, calls_{0};
  bool lock_all_unchecked_ = false;
  bool marks_exposure_;                     // in the lock word, for who locks meanwhile; not with FARSIDE_CHECK=off
  std::unique_ptr<Strict> strict_;          // FARSIDE_CHECK=strict, else null
  std::uint8_t said_in_barrier_ = 0;        // in the last one (epochs/protocols/barrier.hpp)
  std::unique_ptr<WindowStatistics> statistics_;  // for FARSIDE_STATS and FARSIDE_TRACE, else null
};

}  // namespace farside::pmpi

#include "pmpi/window/window_fast_path.hpp"
