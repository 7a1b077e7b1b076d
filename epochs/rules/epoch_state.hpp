// SPDX-License-Identifier: BSD-3-Clause
// EpochState: which epochs of one window are open at this process, and whether a call is allowed now. Pure:
// no I/O, no waiting, no MPI. The rules themselves are the tables of epoch_table.hpp.
//
//   EpochState state(ranks);
//   if (Violation v = state.begin_lock(3, LockType::kShared)) return report(v);   // nothing has changed
//   ... acquire the lock at rank 3; if that shows that the call was wrong after all: state.lock_refused(3); else
//   state.lock_acquired(3);
//   if (Violation v = state.operation(3)) return report(v);
//   ... put ...
//   if (Violation v = state.unlock(3)) return report(v);
//   ... complete the puts, release the lock ...
//
// Calls that block are asked before they block, and move the state then:
//   lock, lock_all, start, post   begin_x() opens the epoch as one that is waited for: it keeps out what the open epoch
//                                 would keep out, but nothing may use or close it. x_acquired(), start_ready() and
//                                 post_notified() open it for use. If the protocol finds the call refused (say, the
//                                 target has posted), x_refused() puts the state back to where it was before. A call
//                                 that waits for nothing (MPI_MODE_NOCHECK) is one step: lock(), lock_all(), start(),
//                                 post().
//   wait, test                    wait() and test() only ask; begin_wait() says that this call is the one that ends the
//                                 exposure, exposure_ended() that it has.
//   complete, unlock, unlock_all, fence, free
//                                 the epoch is over at once; what the protocol needs of it (the types of
//                                 locks, access() before a fence) is read before the call. started_group()
//                                 outlives complete.
// Nothing here is thread-safe: with MPI_THREAD_MULTIPLE each call, accessors and operation() too, is made
// under the window's mutex, which is not held while a protocol waits. So one thread may wait for a lock on A
// while another locks B; two threads that race to open the same epoch (lock A twice, start and start), or to close one
// that is still waited for, get the violation they deserve, and the thread that waits goes on undisturbed.
//
// Ranks are those of the window. MPI_PROC_NULL never comes here: the caller filters it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epochs/rules/epoch_table.hpp"
#include "epochs/rules/violation.hpp"

namespace farside::epochs {

enum class LockType : std::uint8_t { kShared, kExclusive };

// The assertions of a fence (MPI_MODE_NO*), without MPI's bit values.
struct FenceAssert {
  bool no_precede = false;
  bool no_succeed = false;
  bool no_store = false;  // no influence on the state
  bool no_put = false;    // no influence on the state
};

class EpochState {
 public:
  // For a window of `ranks` processes (at least 1). Allocates nothing; the first start, or lock of a second
  // target, allocates a bit per rank, the first such lock that is exclusive another.
  explicit EpochState(int ranks) : ranks_(static_cast<unsigned>(ranks)) {}
  // From now on operations and flushes are allowed anywhere; what opens and closes epochs is judged as before.
  void uncheck() { unchecked_ = true; }

  // Each call below returns the rule it breaks, and then nothing has changed; or no violation, and the state
  // has moved.

  // Put, get, accumulate and the like. The first after a fence makes an epoch of it. `updates`: it may change the
  // target's window.
  Violation operation(int target, bool updates = true) {
    if (allows_fast_operation(target)) [[likely]]
      return {};
    return operate(target, updates);
  }
  // Rput and the like.
  Violation request_operation(int target) {
    if (passive(target)) [[likely]]
      return {};
    return apply(Call::kRequestOperation, target);
  }
  // Flush and flush_local.
  Violation flush(int target) {
    if (allows_fast_flush(target)) [[likely]]
      return {};
    return apply(Call::kFlush, target);
  }
  // Flush_all and flush_local_all.
  Violation flush_all() { return apply(Call::kFlushAll); }
  // Always allowed: the standard wants a passive epoch, but the call is harmless and common outside of one.
  Violation sync() { return apply(Call::kSync); }

  Violation fence(FenceAssert assert);

  // The groups are ranks of the window, each at most once; they may be empty, and may name this process.
  // Copied.
  Violation post(std::span<const int> group);
  Violation start(std::span<const int> group);
  // The same in two steps, for a protocol that waits between them.
  Violation begin_post(std::span<const int> group);
  void post_notified();
  Violation begin_start(std::span<const int> group);
  void start_ready();
  Violation complete();
  // May this process wait for (test) the end of its exposure epoch? The epoch stays open until
  // exposure_ended().
  Violation wait();
  Violation test() { return apply(Call::kTest); }
  // wait(), by the only call that may end this exposure: all others are refused until exposure_ended().
  Violation begin_wait();
  // After a wait, or a test that answered true; only when exposure() is kPosted or kWaiting.
  void exposure_ended(Call by = Call::kWait);

  Violation lock(int target, LockType type);
  // The same in two steps, for a protocol that waits between them. Several targets may be waited for at once.
  Violation begin_lock(int target, LockType type);
  void lock_acquired(int target);
  Violation unlock(int target);
  // The calls that programs make all the time, in the states in which they mostly make them. True: allowed, and the
  // state is where operation(), flush(), lock() or unlock() would have put it. False: nothing has changed; ask those.
  bool allows_fast_operation(int target) const {
    return is_lone(target) || static_cast<unsigned>(target) < open_below_ || listed(target);
  }
  bool allows_fast_flush(int target) const { return passive(target); }
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
  // The same in two steps, for what goes between them.
  bool allows_fast_lock(int target) const { return allows_fast_lock() && static_cast<unsigned>(target) < ranks_; }
  bool allows_fast_lock() const { return access_ == Access::kNone && !after_fence_; }  // a target that there is
  void fast_locked(int target, LockType type);
  bool allows_fast_unlock(int target) const { return is_lone(target) && locks_held_ == 1 && !after_fence_; }
  void fast_unlocked();
  // Likewise with one peer, the same as in the last epoch of that kind.
  bool allows_fast_start(int target) const {
    return access_ == Access::kNone && !after_fence_ && !restricting_ && started_group_.size() == 1 &&
           started_group_[0] == target;
  }
  void fast_started(int target);
  bool allows_fast_complete() const { return access_ == Access::kStarted && lone_ != kNobody; }
  void fast_completed();
  bool allows_fast_post(int origin) const {
    return exposure_ == Exposure::kNone && access_ < Access::kLockingAll && posted_group_.size() == 1 &&
           posted_group_[0] == origin;
  }
  void fast_posted();
  // Without assertions.
  bool allows_fast_fence() const {
    return access_ <= Access::kFenceActive && exposure_ <= Exposure::kFence && !restricting_;
  }
  void fast_fenced();
  bool allows_fast_wait() const { return exposure_ == Exposure::kPosted && posted_group_.size() == 1; }
  Violation lock_all() { return apply(Call::kLockAll); }
  // The same in two steps, for a protocol that waits between them.
  Violation begin_lock_all();
  void lock_all_acquired();
  Violation unlock_all() { return apply(Call::kUnlockAll); }

  // After it the object is good for nothing but destruction.
  Violation free() { return apply(Call::kFree); }

  // The target has said that nobody will update its window until the epoch of the fence or start just opened has ended
  // (MPI_MODE_NOPUT). From then on operation() is slower in this epoch.
  void asserted_no_put(int target);

  // Undo the last successful call of that name, in one step or begun, for a protocol that found it refused or failed.
  // As before it, a fence that nothing followed is open again, unless another epoch was completed meanwhile (by another
  // thread).
  void lock_refused(int target);
  void lock_all_refused();
  void start_refused();
  void post_refused();

  int ranks() const { return static_cast<int>(ranks_); }
  Access access() const { return access_; }
  Exposure exposure() const { return exposure_; }
  // The group of the last start (post), as given; valid until the next one.
  std::span<const int> started_group() const { return started_group_; }
  std::span<const int> posted_group() const { return posted_group_; }
  // How this process holds the target's window now, by lock or lock_all.
  std::optional<LockType> locked(int target) const;
  // The number of targets locked by lock; lock_all does not count, nor do targets that are still waited for.
  int locks_held() const { return locks_held_ - static_cast<int>(awaited_.size()); }

  // For messages. The MPI call that opened the present access epoch: nullptr if none is open. The one that
  // ended the last: nullptr if none has ended. The same for the exposure side.
  const char* opened_by() const { return access_ == Access::kNone ? nullptr : opened_by_; }
  const char* closed_by() const { return closed_by_; }
  const char* exposure_opened_by() const { return exposure_opened_by_; }
  const char* exposure_closed_by() const { return exposure_closed_by_; }
  // The same in words: "2 targets are locked (MPI_Win_lock)", "no access epoch is open (the last was closed
  // by ...)".
  std::string describe_access() const;
  std::string describe_exposure() const;

 private:
  using Bits = std::vector<std::uint64_t>;  // one per rank, or empty

  static void set(Bits& bits, int rank) {
    bits[static_cast<unsigned>(rank) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  }
  static void clear(Bits& bits, int rank) {
    bits[static_cast<unsigned>(rank) / 64] &= ~(std::uint64_t{1} << (static_cast<unsigned>(rank) % 64));
  }
  // kStarted: in the group; kLocked: locked; else false.
  bool member(int target) const { return is_lone(target) || listed(target); }
  bool is_lone(int target) const { return lone_ == static_cast<unsigned>(target); }
  bool listed(int target) const {
    const auto rank = static_cast<unsigned>(target);
    return rank < members_below_ && ((members_[rank / 64] >> (rank % 64)) & 1) != 0;
  }
  bool awaits(int target) const;
  bool passive(int target) const {
    return access_ == Access::kLocked      ? member(target)
           : access_ == Access::kLockedAll ? static_cast<unsigned>(target) < ranks_
                                           : false;
  }
  Violation operate(int target, bool updates);
  void forget_assertions();
  // The rule that the call breaks in the present state, or kNone. This and the others up to decide() are inline: where
  // the call is known they are a few instructions.
  inline Rule judge(Call call, int target, FenceAssert assert) const;
  // Moves both sides by a call that was judged.
  inline void move(Call call, int target = kNoTarget, FenceAssert assert = {});
  inline void move_access(Call call, int target, FenceAssert assert);
  inline void move_exposure(Call call, FenceAssert assert);
  // Judges a call that takes no group and no lock type, and moves the state.
  inline Violation decide(Call call, int target = kNoTarget, FenceAssert assert = {});
  Violation apply(Call call, int target = kNoTarget, FenceAssert assert = {});
  void enter(Access next, const char* by);
  void back_to_before();
  bool group_is_valid(std::span<const int> group) const;
  bool reserve(Bits& bits) const;
  void clear_started();

  void drop(int target);
  void hold(int target, LockType type);

  struct Awaited {
    int target;
    LockType type;
  };

  static constexpr int kNoTarget = -1;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};  // unlike any rank

  // Read by every operation. In kFenceActive and kLockedAll every rank below `open_below_` (= ranks_) may be
  // accessed, in kStarted and kLocked every member below `members_below_` (= ranks_); both are 0 in other
  // states, and in an epoch in which somebody has promised MPI_MODE_NOPUT.
  unsigned open_below_ = 0;
  unsigned members_below_ = 0;
  unsigned ranks_;
  Access access_ = Access::kNone;
  Exposure exposure_ = Exposure::kNone;
  bool after_fence_ = false;           // kStarted, kLocked, kLockedAll: entered from kFenceOpen
  bool exposure_after_fence_ = false;  // kPosted: entered from kFence
  int locks_held_ = 0;  // with those that are awaited
  LockType lone_type_ = LockType::kShared;
  // kLocked: a target that is locked and has no bit below; kStarted: the only member of the group, unless it has a bit;
  // else nobody. Programs mostly lock one target at a time, and often meet one: then it is all there is.
  std::uint64_t lone_ = kNobody;
  Bits members_;    // kStarted: the group; kLocked: the targets locked; both without lone_; else all 0
  Bits no_put_;     // who has promised MPI_MODE_NOPUT in this epoch; meaningful if restricting_
  bool restricting_ = false;
  bool unchecked_ = false;
  Bits exclusive_;  // of those that are locked, those held exclusively
  std::vector<Awaited> awaited_;  // kLocked: targets that a thread still waits for; one per thread
  std::vector<int> started_group_;
  std::vector<int> posted_group_;
  const char* opened_by_ = nullptr;  // of the present access epoch, if there is one
  const char* closed_by_ = nullptr;
  const char* exposure_opened_by_ = nullptr;
  const char* exposure_closed_by_ = nullptr;
};

// What the quick ways take for granted of the tables.
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
  lone_type_ = type;
  lone_ = static_cast<unsigned>(target);
  locks_held_ = 1;
  opened_by_ = call_name(Call::kLock);
}

inline void EpochState::fast_unlocked() {
  access_ = Access::kNone;
  lone_ = kNobody;
  locks_held_ = 0;
  members_below_ = 0;
  closed_by_ = call_name(Call::kUnlock);
}

inline void EpochState::fast_started(int target) {
  access_ = Access::kStarted;
  lone_ = static_cast<unsigned>(target);
  opened_by_ = call_name(Call::kStart);
}

inline void EpochState::fast_completed() {
  access_ = Access::kNone;
  lone_ = kNobody;
  after_fence_ = false;
  members_below_ = 0;
  closed_by_ = call_name(Call::kComplete);
}

inline void EpochState::fast_fenced() {
  if (access_ != Access::kNone) closed_by_ = call_name(Call::kFence);
  access_ = Access::kFenceOpen;
  opened_by_ = call_name(Call::kFence);
  open_below_ = members_below_ = 0;
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
