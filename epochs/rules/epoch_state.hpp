// SPDX-License-Identifier: BSD-3-Clause
// EpochState: the open epochs of one window at this process, and whether a call is allowed now. It does no I/O, never
// waits and does not know MPI. The rules are the tables of epoch_table.hpp.
//
//   EpochState state(ranks);
//   if (Violation v = state.begin_lock(3, LockType::kShared)) return report(v);   // nothing has changed
//   ... acquire the lock at rank 3 ...
//   state.lock_acquired(3);   // or, if the protocol finds that the call is refused: state.lock_refused(3)
//   if (Violation v = state.operation(3)) return report(v);
//   ... put ...
//   if (Violation v = state.unlock(3)) return report(v);
//   ... complete the puts, release the lock ...
//
// A call that blocks is checked, and changes the state, before it blocks:
//
//   lock, lock_all, start, post   begin_x() opens the epoch as awaited. An awaited epoch refuses the same calls as the
//                                 open epoch, and in addition no call may use or close it. x_acquired(), start_ready()
//                                 and post_notified() open the epoch for use. If the protocol finds that the call is
//                                 refused (for example because the target has posted), x_refused() restores the former
//                                 state. A call that does not wait (MPI_MODE_NOCHECK) takes one step: lock(),
//                                 lock_all(), start(), post().
//   wait, test                    wait() and test() only ask. begin_wait() claims the end of the exposure for this
//                                 call, exposure_ended() ends it.
//   complete, unlock, unlock_all, fence, free
//                                 the epoch ends at once. What the protocol needs of it (the types of locks, access()
//                                 before a fence) must be read before the call. started_group() outlives complete.
//
// Thread safety: each call is made under the window's mutex, which is not held while a protocol waits. So one thread
// may wait for a lock on A while another locks B. If two threads race to open the same epoch (lock A twice, start and
// start), or to close one that is still awaited, one of them gets the violation, and the thread that waits is not
// disturbed. allows_fast_operation() and allows_fast_flush() need no mutex: they return true only if the call is
// allowed in a state that the object had during the call. So an operation that runs concurrently with a
// synchronization call sees the state before or after it.
//
// Errors: a Violation, of the classes in violation.hpp; kNoMemory if the bookkeeping cannot grow. No remote operations.
// Memory: 256 bytes, and 8 on the heap; 4 bytes per member of the last groups of start and post. One bit per rank is
// allocated for each of three sets when the set is first needed: the open targets (a start with two members, a lock of
// a second target, or MPI_MODE_NOPUT in an epoch of start), the targets locked exclusively (an exclusive lock of a
// second target), and the targets that have asserted MPI_MODE_NOPUT. reserve_locks() allocates the first two.
//
// Ranks are those of the window. The caller filters out MPI_PROC_NULL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epochs/rules/epoch_table.hpp"
#include "epochs/rules/open_targets.hpp"
#include "epochs/rules/violation.hpp"

namespace farside::epochs {

enum class LockType : std::uint8_t { kShared, kExclusive };

// The assertions of a fence (MPI_MODE_NO*), without MPI's bit values.
struct FenceAssert {
  bool no_precede = false;
  bool no_succeed = false;
  bool no_store = false;  // does not affect the state
  bool no_put = false;    // does not affect the state
};

class EpochState {
 public:
  // `ranks`: the size of the window, at least 1.
  explicit EpochState(int ranks) : open_(ranks), ranks_(static_cast<unsigned>(ranks)) { awaited_.reserve(1); }
  // FARSIDE_CHECK=off: from now on a call that breaks a rule is carried out where the table says so (Cell::Broken).
  //
  // A call that closes an epoch that is not open then closes nothing. A lock of a target that this process holds at
  // least as strongly is not acquired again: it is counted, and so is a second lock_all. An epoch of start goes on
  // below locks, whichever came first.
  void disable_checks() { report_ = &kNoReport; }
  // The same (FARSIDE_CHECK=warn), but `report` is called for each rule that such a call breaks, in that call. It must
  // live as long as this object.
  using Report = std::function<void(const Violation&, int target)>;  // a negative target: the call has none
  void warn_with(const Report& report) { report_ = &report; }

  // Each call below returns the broken rule and changes nothing, or returns no violation and changes the state.

  // Put, get, accumulate and the like. The first one after a fence opens the epoch. `updates`: the operation may
  // change the target's window.
  Violation operation(int target, bool updates = true) {
    if (allows_fast_operation(target)) [[likely]]
      return {};
    return operate(target, updates);
  }
  // MPI_Rput and the like.
  Violation request_operation(int target) {
    if (passive(target)) [[likely]]
      return {};
    return apply(Call::kRequestOperation, target);
  }
  // MPI_Win_flush and MPI_Win_flush_local.
  Violation flush(int target) {
    if (allows_fast_flush(target)) [[likely]]
      return {};
    return apply(Call::kFlush, target);
  }
  // MPI_Win_flush_all and MPI_Win_flush_local_all.
  Violation flush_all() { return apply(Call::kFlushAll); }
  // Always allowed. The standard demands a passive epoch, but the call is harmless and common outside of one.
  Violation sync() { return apply(Call::kSync); }

  Violation fence(FenceAssert assert);

  // Groups are ranks of the window, each at most once. They may contain this process. They are copied. With an empty
  // group the call "is a noop" (MPI 4.0 section 12.5.2): it opens nothing, and its complete or wait closes nothing.
  Violation post(std::span<const int> group);
  Violation start(std::span<const int> group);
  // The two steps of post() and start(), for a protocol that waits in between.
  Violation begin_post(std::span<const int> group);
  void post_notified();
  Violation begin_start(std::span<const int> group);
  void start_ready();
  Violation complete();
  // Whether the next complete() ends an epoch. If not, it has nobody to notify.
  bool started() const {
    return access_ == Access::kStarted || (access_ > Access::kStarted && before_ == Access::kStarted);
  }
  // Whether this process may wait for (test) the end of its exposure epoch. The epoch stays open until
  // exposure_ended().
  Violation wait();
  Violation test();
  // Claims the end of this exposure for the calling thread: until exposure_ended() all other claims are refused.
  // exposure() is not kWaiting afterwards if there is no exposure to end.
  Violation begin_wait();
  // After a wait, or a test that returned true. Precondition: exposure() is kPosted or kWaiting.
  void exposure_ended(Call by = Call::kWait);

  Violation lock(int target, LockType type);
  // The two steps of lock(), for a protocol that waits in between. Several targets may be awaited at once.
  Violation begin_lock(int target, LockType type);
  void lock_acquired(int target);
  // Whether the target's lock is to be acquired, and lock_acquired() or lock_refused() to be called. Not after a lock
  // that is only counted.
  bool awaits(int target) const;
  // Afterwards locked() says whether the target is still locked: the unlock was one of several.
  Violation unlock(int target);
  // For locks that the lock stripes hold and this object does not contain, while it has no open access epoch
  // (protocols/lock_stripes.hpp). reserve_locks() allocates the memory for locks of any targets, so that lock()
  // allocates none. It returns false if there is no memory.
  bool reserve_locks() { return open_.reserve_members() && reserve(exclusive_); }
  // Such locks were taken; those that are still held have been entered by lock().
  void locked_meanwhile() { closed_by_ = call_name(Call::kUnlock); }
  // The fast path of frequent calls in frequent states. True: the call is allowed, and the state is as operation(),
  // flush(), lock() or unlock() would have left it. False: nothing has changed, and the caller must ask these.
  bool allows_fast_operation(int target) const { return open_.operation(target); }
  bool allows_fast_flush(int target) const { return open_.flush(target); }
  bool try_lock(int target, LockType type) {
    if (!allows_fast_lock(target)) return false;
    fast_locked(target, type);
    return true;
  }
  bool try_unlock(int target) {
    if (!allows_fast_unlock(target)) return false;
    fast_unlocked();
    return true;
  }
  // The two steps of try_lock() and try_unlock(), for what lies in between.
  bool allows_fast_lock(int target) const { return allows_fast_lock() && static_cast<unsigned>(target) < ranks_; }
  // The target must be a rank of the window.
  bool allows_fast_lock() const { return access_ == Access::kNone; }
  void fast_locked(int target, LockType type);
  bool allows_fast_unlock(int target) const {
    return open_.is_single(target) && locks_held_ == 1 && before_ == Access::kNone;
  }
  void fast_unlocked();
  // Likewise for epochs with one peer, the same as in the last epoch of that kind.
  bool allows_fast_start(int target) const {
    return access_ == Access::kNone && !restricting_ && started_group_.size() == 1 && started_group_[0] == target;
  }
  void fast_started(int target);
  bool allows_fast_complete() const {
    return access_ == Access::kStarted && before_ <= Access::kFenceOpen && open_.has_single();
  }
  void fast_completed();
  bool allows_fast_post(int origin) const {
    return exposure_ == Exposure::kNone && access_ < Access::kLockingAll && posted_group_.size() == 1 &&
           posted_group_[0] == origin;
  }
  void fast_posted();
  // For fences without assertions.
  bool allows_fast_fence() const {
    return access_ <= Access::kFenceActive && exposure_ <= Exposure::kFence && !restricting_;
  }
  void fast_fenced();
  bool allows_fast_wait() const { return exposure_ == Exposure::kPosted && posted_group_.size() == 1; }
  Violation lock_all() {
    const Violation refused = begin_lock_all();
    if (!refused && access_ == Access::kLockingAll) lock_all_acquired();
    return refused;
  }
  // The two steps of lock_all(), for a protocol that waits in between. access() is kLockingAll after the first unless
  // the lock_all is only counted.
  Violation begin_lock_all();
  void lock_all_acquired();
  Violation unlock_all();

  // The last call on the object.
  Violation free() { return apply(Call::kFree); }

  // The target has asserted MPI_MODE_NOPUT: no process updates its window until the epoch of the fence or start just
  // opened has ended. operation() takes the slow path for the rest of this epoch.
  void asserted_no_put(int target);

  // Each function undoes the last successful call of its name, begun or complete, after the protocol has found that the
  // call is refused or has failed. A fence that preceded the call without operations is open again, unless another
  // thread has completed an epoch since.
  void lock_refused(int target);
  void lock_all_refused();
  void start_refused();
  void post_refused();

  int ranks() const { return static_cast<int>(ranks_); }
  Access access() const { return access_; }
  Exposure exposure() const { return exposure_; }
  // The group of the last start (post), as given; valid until the next start (post).
  std::span<const int> started_group() const { return started_group_; }
  std::span<const int> posted_group() const { return posted_group_; }
  // The type of the lock that this process holds on the target now, by lock or lock_all.
  std::optional<LockType> locked(int target) const;
  // The number of targets locked by lock, without those that are awaited; 0 for lock_all.
  int locks_held() const { return locks_held_ - static_cast<int>(awaited_.size() + again_.size()); }
  // The locks that are held or awaited.
  std::size_t locks_begun() const { return static_cast<std::size_t>(locks_held_); }

  // For messages: the MPI call that opened the present access epoch, nullptr if none is open; the call that closed
  // the last one, nullptr if none has been closed. Likewise for the exposure side.
  const char* opened_by() const { return access_ == Access::kNone ? nullptr : opened_by_; }
  const char* closed_by() const { return closed_by_; }
  const char* exposure_opened_by() const { return exposure_opened_by_; }
  const char* exposure_closed_by() const { return exposure_closed_by_; }
  // The state in words: "2 targets are locked (MPI_Win_lock)", "no access epoch is open (the last was closed by
  // ...)".
  std::string describe_access() const;
  std::string describe_exposure() const;

 private:
  using Bits = std::vector<std::uint64_t>;  // one bit per rank, or empty

  static void set(Bits& bits, int rank) {
    bits[static_cast<unsigned>(rank) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  }
  static void clear(Bits& bits, int rank) {
    bits[static_cast<unsigned>(rank) / 64] &= ~(std::uint64_t{1} << (static_cast<unsigned>(rank) % 64));
  }
  // kStarted: whether the target is in the group; kLocked: whether it is locked; else false.
  bool member(int target) const {
    if (open_.is_single(target)) return true;
    return open_.members_open() && static_cast<unsigned>(target) < ranks_ && open_.member(target);
  }
  bool passive(int target) const {
    return access_ == Access::kLocked      ? member(target)
           : access_ == Access::kLockedAll ? static_cast<unsigned>(target) < ranks_
                                           : false;
  }
  Violation operate(int target, bool updates);
  // Returns the violation, or none where the call is carried out all the same. `ends`: it is not.
  Violation violation_or_report(Call call, Rule rule, int target, bool ends = false) const;
  bool ends(Call call, Rule rule) const;
  Violation lock_again(Call call, Rule rule, int target, bool ends);
  bool ends_counted(int target);
  void forget_assertions();
  // Returns the rule that the call breaks in the present state, or kNone. broken_rule() to apply_inline() are inline:
  // with a constant call they are a few instructions.
  inline Rule broken_rule(Call call, int target, FenceAssert assert) const;
  // Changes both sides by a call that breaks no rule.
  // `awaited`: the new state of access instead of the table's, while the call waits.
  inline void change_state(Call call, int target = kNoTarget, FenceAssert assert = {}, Access awaited = Access::kNone);
  inline void change_access(Call call, int target, FenceAssert assert, Access awaited);
  inline void change_exposure(Call call, FenceAssert assert);
  // Checks a call without group and lock type, and changes the state. apply() is the same, not inline.
  inline Violation apply_inline(Call call, int target = kNoTarget, FenceAssert assert = {});
  Violation apply(Call call, int target = kNoTarget, FenceAssert assert = {});
  void enter(Access next, const char* by);
  // Returns to the epoch below the present one, if there is one. `refused`: as if the present one had not been opened.
  void resume(bool refused);
  bool group_is_valid(std::span<const int> group) const;
  bool reserve(Bits& bits) const;
  void add_started();
  void clear_started();

  void drop(int target);
  void hold(int target, LockType type);

  struct Awaited {
    int target;
    LockType type;
  };

  static constexpr int kNoTarget = -1;

  // Read by every operation, without the mutex. In kFenceActive and kLockedAll all ranks are open. In kStarted and
  // kLocked the group or the locked targets are: one of them as the single target, the others as the set (most programs
  // lock one target at a time, and many meet one peer at a time). In an epoch of a fence or start in which a target has
  // asserted MPI_MODE_NOPUT none of these is open, and all operations ask the rules.
  OpenTargets open_;
  unsigned ranks_;
  Access access_ = Access::kNone;
  Exposure exposure_ = Exposure::kNone;
  // In an epoch of start or locks: the state when it was opened, kNone or kFenceOpen. Where broken rules are carried
  // out also kFenceActive, or the state of an epoch of start that goes on below locks.
  Access before_ = Access::kNone;
  bool exposure_after_fence_ = false;              // kPosted: entered from kFence
  bool empty_start_ = false, empty_post_ = false;  // with an empty group, and not yet completed or waited for
  int locks_held_ = 0;                             // includes awaited ones and those counted in again_
  LockType single_type_ = LockType::kShared;
  bool restricting_ = false;
  Bits no_put_;  // targets that have asserted MPI_MODE_NOPUT in this epoch; meaningful if restricting_
  // Null: all rules are enforced.
  const Report* report_ = nullptr;
  static const Report kNoReport;
  Bits exclusive_;                // locked targets that are held exclusively
  std::vector<Awaited> awaited_;  // kLocked: targets that a thread still waits for; one per thread
  std::vector<int> again_;        // locks that are held already, each with an unlock of its own; kNoTarget: of all
  std::vector<int> started_group_;
  std::vector<int> posted_group_;
  const char* opened_by_ = nullptr;  // of the present access epoch, if one is open
  const char* closed_by_ = nullptr;
  const char* exposure_opened_by_ = nullptr;
  const char* exposure_closed_by_ = nullptr;
};

// What the fast paths assume about the tables.
static_assert(cell(Call::kLock, Access::kNone).kind == AccessCell::Kind::kGo);
static_assert(cell(Call::kLock, Access::kNone).next == Access::kLocked);
static_assert(cell(Call::kUnlock, Access::kLocked).kind == AccessCell::Kind::kLeave);
static_assert(cell(Call::kStart, Access::kNone).next == Access::kStarted &&
              cell(Call::kComplete, Access::kStarted).next == Access::kNone);
static_assert(cell(Call::kPost, Exposure::kNone).next == Exposure::kPosted);
static_assert(cell(Call::kFence, Access::kNone).next == Access::kFenceOpen &&
              cell(Call::kFence, Access::kFenceOpen).next == Access::kFenceOpen &&
              cell(Call::kFence, Access::kFenceActive).next == Access::kFenceOpen &&
              cell(Call::kFence, Exposure::kNone).next == Exposure::kFence &&
              cell(Call::kFence, Exposure::kFence).next == Exposure::kFence);
static_assert(!shape(Call::kStart).exposure && !shape(Call::kComplete).exposure && !shape(Call::kWait).access);
static_assert(!shape(Call::kOperation).exposure && !shape(Call::kFlush).exposure && !shape(Call::kLock).exposure &&
              !shape(Call::kUnlock).exposure);

inline void EpochState::fast_locked(int target, LockType type) {
  access_ = Access::kLocked;
  single_type_ = type;
  locks_held_ = 1;
  opened_by_ = call_name(Call::kLock);
  open_.open_single(target, true);
}

inline void EpochState::fast_unlocked() {
  open_.close_single();
  open_.close_members();
  access_ = Access::kNone;
  locks_held_ = 0;
  closed_by_ = call_name(Call::kUnlock);
}

inline void EpochState::fast_started(int target) {
  access_ = Access::kStarted;
  opened_by_ = call_name(Call::kStart);
  open_.open_single(target, false);
}

inline void EpochState::fast_completed() {
  open_.close_single();
  open_.close_members();
  access_ = before_ = Access::kNone;
  closed_by_ = call_name(Call::kComplete);
}

inline void EpochState::fast_fenced() {
  if (access_ != Access::kNone) closed_by_ = call_name(Call::kFence);
  open_.close_all();
  open_.close_members();
  access_ = Access::kFenceOpen;
  opened_by_ = call_name(Call::kFence);
  exposure_after_fence_ = exposure_ == Exposure::kFence;
  if (exposure_after_fence_) exposure_closed_by_ = call_name(Call::kFence);
  exposure_ = Exposure::kFence;
  exposure_opened_by_ = call_name(Call::kFence);
}

inline void EpochState::fast_posted() {
  exposure_ = Exposure::kPosted;
  exposure_after_fence_ = false;
  exposure_opened_by_ = call_name(Call::kPost);
}

inline void EpochState::exposure_ended(Call by) {
  exposure_ = Exposure::kNone;
  exposure_opened_by_ = nullptr;
  exposure_closed_by_ = call_name(by);
}

}  // namespace farside::epochs
