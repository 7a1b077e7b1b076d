// SPDX-License-Identifier: BSD-3-Clause
// EpochState: the open epochs of one window at this process, and whether a call is allowed now. It does no I/O, never
// waits and does not know MPI. The rules are the tables of epoch_table.hpp.
//
//   if (Violation v = state.begin_lock(3, LockType::kShared)) return report(v);   // nothing has changed
//   ... acquire the lock at rank 3 ...
//   state.opened(Call::kLock, 3);   // or, if the protocol finds that the call is refused: state.refused(...)
//   if (Violation v = state.operation(3)) return report(v);
//   ... put ...
//
// A call that blocks is checked, and changes the state, before it blocks:
//
//   lock, lock_all, start, post   begin_x() opens the epoch as awaited. An awaited epoch refuses the same calls as the
//                                 open epoch, and in addition no call may use or close it. opened() opens it for use;
//                                 refused() restores the former state. A call that does not wait (MPI_MODE_NOCHECK)
//                                 takes one step: lock(), lock_all(), start(), post().
//   wait, test                    wait() and test() only ask. begin_wait() claims the end of the exposure for this
//                                 call, exposure_ended() ends it.
//   complete, unlock, unlock_all, fence, free
//                                 the epoch ends at once. What the protocol needs of it must be read before the call.
//                                 started_group() outlives complete.
//
// Thread safety: each call is made under the window's mutex, which is not held while a protocol waits. If two threads
// race to open the same epoch, or to close one that is still awaited, one of them gets the violation, and the thread
// that waits is not disturbed. allows_fast() of an operation or flush needs no mutex: it returns true only if the call
// is allowed in a state that the object had during the call.
//
// Errors: a Violation; kNoMemory if the bookkeeping cannot grow. No remote operations. Memory: 256 bytes, and 8 on the
// heap; 4 bytes per member of the last groups of start and post. One bit per rank is allocated for each of two sets
// when the set is first needed: the open targets (a start with two members, a lock of a second target, or
// MPI_MODE_NOPUT in an epoch of start), and the targets that have asserted MPI_MODE_NOPUT.
//
// Ranks are those of the window. The caller filters out MPI_PROC_NULL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "epochs/rules/epoch_table.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"

namespace farside::epochs {

// OpenTargets: which targets the open epoch of a window allows operations and flushes on. EpochState changes it, under
// the window's mutex. Operations and flushes read it without the mutex.
//
// Each of three members can allow targets: `single_` one target, `below_` all ranks, and `members_` a set of targets. A
// reader never needs to combine two of them. For the set, a reader needs the bits and whether the set is open. The two
// are consistent if the set was not closed while the reader read them, which the reader checks by `set_`.
//
// Thread safety: operation() and flush() any thread, also during a change: they return true only for a target that was
// open at some moment of the call. All other functions one thread at a time. No remote operations. Memory: 48 bytes,
// and a bit per rank from the first set on.

// A bit per rank, allocated when it is first needed. All but empty() and reserve() need that.
class RankBits {
 public:
  bool empty() const { return words_.empty(); }
  bool reserve(unsigned ranks) {
    const auto allocate = [&] { words_ = std::vector<Word>((std::size_t{ranks} + 63) / 64); };
    return !words_.empty() || without_bad_alloc(allocate).ok();
  }
  bool has(int rank) const { return (words_[number(rank) / 64] >> (number(rank) % 64) & 1) != 0; }
  void add(int rank) { words_[number(rank) / 64] = words_[number(rank) / 64] | bit(rank); }
  void remove(int rank) { words_[number(rank) / 64] = words_[number(rank) / 64] & ~bit(rank); }
  void clear() {
    for (Word& word : words_) word = 0;
  }

 private:
  using Word = Published<std::uint64_t>;
  static unsigned number(int rank) { return static_cast<unsigned>(rank); }
  static std::uint64_t bit(int rank) { return std::uint64_t{1} << (number(rank) % 64); }

  std::vector<Word> words_;
};

class OpenTargets {
 public:
  explicit OpenTargets(int ranks) : ranks_(static_cast<unsigned>(ranks)) {}

  [[gnu::always_inline]] bool operation(int target) const {
    return is_single(target) || number(target) < below_ || listed(target, kOpen);
  }
  bool flush(int target) const {
    return single_ == single_of(target, true) || number(target) < flush_below_ || listed(target, kOpen | kPassive);
  }

  // `passive`: by locks, so that flushes are allowed as well.
  void open_single(int target, bool passive) { single_ = single_of(target, passive); }
  void close_single() { single_ = kNobody; }
  bool has_single() const { return single_ != kNobody; }
  int single() const { return static_cast<int>(single_ / 2); }
  bool is_single(int target) const { return single_ / 2 == number(target); }

  void open_all(bool passive) {
    if (passive) flush_below_ = ranks_;
    below_ = ranks_;
  }
  void close_all() { below_ = flush_below_ = 0; }

  // The set may change while it is open or closed.
  RankBits& members() { return members_; }
  const RankBits& members() const { return members_; }
  void open_members(bool passive) { set_ = (set_ & ~(kOpen | kPassive)) | kOpen | (passive ? kPassive : 0); }
  void close_members() {
    if (members_open()) set_ = (set_ & ~(kOpen | kPassive)) + kClosed;
  }
  bool members_open() const { return (set_ & kOpen) != 0; }

 private:
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};  // of no target
  static constexpr unsigned kOpen = 1, kPassive = 2, kClosed = 4;
  static unsigned number(int target) { return static_cast<unsigned>(target); }
  static std::uint64_t single_of(int target, bool passive) {
    return std::uint64_t{number(target)} * 2 + (passive ? 1 : 0);
  }

  bool listed(int target, unsigned needed) const {
    const unsigned set = set_;
    if ((set & needed) != needed || number(target) >= ranks_) [[likely]]
      return false;
    return members_.has(target) && set_ == set;
  }

  Published<std::uint64_t> single_ = kNobody;
  Published<unsigned> below_ = 0;
  Published<unsigned> flush_below_ = 0;
  Published<unsigned> set_ = 0;  // flags of the set, and how often it was closed
  unsigned ranks_;
  RankBits members_;
};

enum class LockType : std::uint8_t { kShared, kExclusive };

// The assertions of a fence (MPI_MODE_NO*) that affect the state.
struct FenceAssert {
  bool no_precede = false;
  bool no_succeed = false;
};

inline constexpr int kNoTarget = -1;

// The present exposure epoch, or the last one.
struct ExposureSide {
  Exposure state = Exposure::kNone;
  bool after_fence = false;         // kPosted: entered from kFence
  bool empty_post = false;          // a post with an empty group has not been waited for
  std::vector<int> group;           // of the last post, as given; valid until the next post
  const char* closed_by = nullptr;  // for messages: the call that closed the last exposure, if one did

  std::string describe() const;
  // By a call that breaks no rule.
  void change(Call call, FenceAssert assert);
  void close(Call by) {
    state = Exposure::kNone;
    closed_by = call_name(by);
  }
};

class EpochState {
 public:
  // `ranks`: the size of the window, at least 1.
  explicit EpochState(int ranks) : open_(ranks), ranks_(static_cast<unsigned>(ranks)) { awaited_.reserve(1); }
  // FARSIDE_CHECK=warn, or off: from now on a call that breaks a rule is carried out where the table says so
  // (Cell::Broken), and `report`, which must live as long as this object, is called for each such rule.
  //
  // A call that closes an epoch that is not open then closes nothing. A lock of a target that this process holds at
  // least as strongly is not acquired again: it is counted, and so is a second lock_all. An epoch of start goes on
  // below locks, whichever came first.
  using Report = std::function<void(const Violation&, int target)>;  // a negative target: the call has none
  void report_only(const Report& report = kNoReport) { report_ = &report; }

  // Each call below returns the broken rule and changes nothing, or returns no violation and changes the state.

  // Put, get, accumulate and the like. The first one after a fence opens the epoch. `updates`: the operation may
  // change the target's window.
  Violation operation(int target, bool updates = true) {
    if (allows_fast(Call::kOperation, target)) [[likely]]
      return {};
    return operate(target, updates);
  }
  Violation request_operation(int target) {
    if (passive(target)) [[likely]]
      return {};
    return apply(Call::kRequestOperation, target);
  }
  Violation flush(int target) {
    if (allows_fast(Call::kFlush, target)) [[likely]]
      return {};
    return apply(Call::kFlush, target);
  }
  Violation flush_all() { return apply(Call::kFlushAll); }
  // Always allowed. The standard demands a passive epoch, but the call is harmless and common outside of one.
  Violation sync() { return apply(Call::kSync); }

  Violation fence(FenceAssert assert) {
    const Violation refused = apply(Call::kFence, kNoTarget, assert);
    if (!refused && access_ <= Access::kFenceActive) forget_assertions();
    return refused;
  }

  // Groups are ranks of the window, each at most once. They may contain this process. They are copied. With an empty
  // group the call "is a noop" (MPI 4.0 section 12.5.2): it opens nothing, and its complete or wait closes nothing.
  Violation post(std::span<const int> group);
  Violation begin_post(std::span<const int> group) {
    const Violation refused = post(group);
    if (!refused && !group.empty()) exposure_.state = Exposure::kPosting;
    return refused;
  }
  Violation start(std::span<const int> group) {
    const Violation refused = begin_start(group);
    if (!refused && !group.empty()) opened(Call::kStart);
    return refused;
  }
  Violation begin_start(std::span<const int> group);
  Violation complete();
  // Whether the next complete() ends an epoch. If not, it notifies no rank.
  bool started() const {
    return access_ == Access::kStarted || (access_ > Access::kStarted && before_ == Access::kStarted);
  }
  // Whether this process may wait for the end of its exposure epoch, which stays open until exposure_ended().
  Violation wait(Call call = Call::kWait) {
    return exposure_.state < Exposure::kPosting && exposure_.empty_post ? Violation() : apply(call);
  }
  Violation test() { return wait(Call::kTest); }
  // Claims the end of this exposure for the calling thread: until exposure_ended() all other claims are refused. The
  // exposure is not kWaiting afterwards if there is none to end.
  Violation begin_wait();
  // After a wait, or a test that returned true. Precondition: the exposure is kPosted or kWaiting.
  void exposure_ended(Call by = Call::kWait) { exposure_.close(by); }

  Violation lock(int target, LockType type) {
    const Violation refused = begin_lock(target, type);
    if (!refused && awaits(target)) opened(Call::kLock, target);
    return refused;
  }
  // Several targets may be awaited at once. `held`: the type of the lock of the target, if this process has locked it.
  Violation begin_lock(int target, LockType type, LockType held = LockType::kShared);
  // Whether the target's lock is to be acquired, and opened() or refused() to be called. Not after a lock that is only
  // counted.
  bool awaits(int target) const;
  // Afterwards locked() says whether the target is still locked: the unlock was one of several.
  Violation unlock(int target) {
    return !again_.empty() && ends_counted(target) ? Violation() : apply(Call::kUnlock, target);
  }
  // For locks that the lock stripes hold and this object does not contain, while it has no open access epoch
  // (protocols/lock_table.hpp). reserve_locks() allocates all memory that lock() needs, or returns false.
  bool reserve_locks() { return open_.members().reserve(ranks_); }
  // Such locks were taken; those that are still held have been entered by lock().
  void locked_meanwhile() { closed_by_ = call_name(Call::kUnlock); }

  // access() is kLockingAll after begin_lock_all() unless the lock_all is only counted.
  Violation lock_all() {
    const Violation refused = begin_lock_all();
    if (!refused && access_ == Access::kLockingAll) opened(Call::kLockAll);
    return refused;
  }
  Violation begin_lock_all();
  Violation unlock_all() { return !again_.empty() && ends_counted(kNoTarget) ? Violation() : apply(Call::kUnlockAll); }

  Violation free() { return apply(Call::kFree); }

  // The epoch of a begun call is open for use. `target`: of a lock.
  void opened(Call call, int target = kNoTarget);
  // Undoes the last successful call of this kind, begun or complete, after the protocol has found that it is refused or
  // has failed. A fence that preceded the call without operations is open again, unless another thread has completed an
  // epoch since.
  void refused(Call call, int target = kNoTarget);

  // The fast path of frequent calls in frequent states. True: the call is allowed; pass_fast() then leaves the state as
  // the call itself would. An operation or flush leaves it as it is, and a wait ends by exposure_ended(). False: the
  // caller must make the call itself. `peer`: the target, or the only member of the group of a start or post, which
  // must be that of the last one; of a lock: a rank of the window. Fences are without assertions.
  [[gnu::always_inline]] bool allows_fast(Call call, int peer = kNoTarget) const {
    switch (call) {
      case Call::kOperation: return open_.operation(peer);
      case Call::kFlush: return open_.flush(peer);
      case Call::kLock: return access_ == Access::kNone;
      case Call::kUnlock: return open_.is_single(peer) && locks_held_ == 1 && before_ == Access::kNone;
      case Call::kStart:
        return access_ == Access::kNone && !restricting_ && started_group_.size() == 1 && started_group_[0] == peer;
      case Call::kComplete: return access_ == Access::kStarted && before_ <= Access::kFenceOpen && open_.has_single();
      case Call::kPost:
        return exposure_.state == Exposure::kNone && access_ < Access::kLockingAll && exposure_.group.size() == 1 &&
               exposure_.group[0] == peer;
      case Call::kWait: return exposure_.state == Exposure::kPosted && exposure_.group.size() == 1;
      case Call::kFence: return access_ <= Access::kFenceActive && exposure_.state <= Exposure::kFence && !restricting_;
      default: return false;
    }
  }
  [[gnu::always_inline]] void pass_fast(Call call, int peer = kNoTarget);

  // The target has asserted MPI_MODE_NOPUT: no process updates its window until the epoch of the fence or start just
  // opened has ended. operation() takes the slow path for the rest of this epoch.
  void asserted_no_put(int target);

  int ranks() const { return static_cast<int>(ranks_); }
  Access access() const { return access_; }
  const ExposureSide& exposure() const { return exposure_; }
  // The group of the last start, as given; valid until the next start.
  std::span<const int> started_group() const { return started_group_; }
  // Whether this process holds a lock of the target now, by lock or lock_all.
  bool locked(int target) const { return passive(target); }
  // The number of targets locked by lock, without those that are awaited; 0 for lock_all.
  int locks_held() const { return locks_held_ - static_cast<int>(awaited_.size() + again_.size()); }
  // Those that are held, awaited or counted.
  std::size_t locks_begun() const { return static_cast<std::size_t>(locks_held_); }

  // For messages: the call that closed the last access epoch, nullptr if none has been closed; and the state in words,
  // such as "2 targets are locked (MPI_Win_lock)".
  const char* closed_by() const { return closed_by_; }
  std::string describe_access() const;

 private:
  // kStarted: whether the target is in the group; kLocked: whether it is locked; else false.
  bool member(int target) const {
    if (open_.is_single(target)) return true;
    return open_.members_open() && static_cast<unsigned>(target) < ranks_ && open_.members().has(target);
  }
  bool passive(int target) const {
    return access_ == Access::kLocked      ? member(target)
           : access_ == Access::kLockedAll ? static_cast<unsigned>(target) < ranks_
                                           : false;
  }
  Violation operate(int target, bool updates);
  // Returns the violation, or none where the call is executed anyway. `ends`: it is not.
  Violation violation_or_report(Call call, const Violation& rule, int target, bool ends = false) const;
  Violation lock_again(Call call, const Violation& rule, int target, bool ends);
  bool ends_counted(int target);
  void forget_assertions() {
    if (!restricting_) return;
    no_put_.clear();
    restricting_ = false;
  }
  // Returns the rule that the call breaks in the present state, or null.
  const Violation* broken_rule(Call call, int target, FenceAssert assert) const;
  // Changes both sides by a call that breaks no rule. `awaited`: the new state of access instead of the table's, while
  // the call waits.
  void change_state(Call call, int target = kNoTarget, FenceAssert assert = {}, Access awaited = Access::kNone);
  // Returns the violation of the call, or none where it is carried out. apply() changes the state as well.
  Violation check(Call call, int target = kNoTarget, FenceAssert assert = {}) const {
    const Violation* const rule = broken_rule(call, target, assert);
    return rule == nullptr ? Violation() : violation_or_report(call, *rule, target);
  }
  Violation apply(Call call, int target = kNoTarget, FenceAssert assert = {});
  void enter(Access next);
  // Returns to the epoch below the present one, if there is one. `refused`: as if the present one had not been opened.
  void resume(bool refused);
  void add_started() {
    if (started_group_.size() == 1) return;  // opened() opens it
    for (const int rank : started_group_) open_.members().add(rank);
  }
  void clear_started() {
    if (open_.has_single()) return open_.close_single();
    if (open_.members().empty()) return;
    for (const int rank : started_group_) open_.members().remove(rank);
  }
  // Removes a target from the locked ones.
  void drop(int target) {
    if (open_.is_single(target)) return open_.close_single();
    open_.members().remove(target);
  }

  // In kFenceActive and kLockedAll all ranks are open. In kStarted and kLocked the group or the locked targets are: one
  // of them as the single target, the others as the set. In an epoch of a fence or start in which a target has asserted
  // MPI_MODE_NOPUT none of these is open, and all operations ask the rules.
  OpenTargets open_;
  unsigned ranks_;
  Access access_ = Access::kNone;
  // In an epoch of start or locks: the state when it was opened, kNone or kFenceOpen. Where broken rules are carried
  // out also kFenceActive, or the state of an epoch of start that goes on below locks.
  Access before_ = Access::kNone;
  bool restricting_ = false;
  int locks_held_ = 0;        // includes awaited ones and those counted in again_
  bool empty_start_ = false;  // a start with an empty group has not been completed
  RankBits no_put_;           // targets that have asserted MPI_MODE_NOPUT in this epoch, if restricting_
  // Null: all rules are enforced.
  const Report* report_ = nullptr;
  static const Report kNoReport;
  std::vector<int> awaited_;  // kLocked: targets that a thread still waits for; one per thread
  std::vector<int> again_;    // locks that are held already, each with its own unlock; kNoTarget: of all
  std::vector<int> started_group_;
  const char* closed_by_ = nullptr;
  ExposureSide exposure_;
};

inline void EpochState::pass_fast(Call call, int peer) {
  const char* const by = call_name(call);
  switch (call) {
    case Call::kLock:
      access_ = Access::kLocked;
      locks_held_ = 1;
      open_.open_single(peer, true);
      break;
    case Call::kUnlock:
      open_.close_single();
      open_.close_members();
      access_ = Access::kNone;
      locks_held_ = 0;
      closed_by_ = by;
      break;
    case Call::kStart:
      access_ = Access::kStarted;
      open_.open_single(peer, false);
      break;
    case Call::kComplete:
      open_.close_single();
      open_.close_members();
      access_ = before_ = Access::kNone;
      closed_by_ = by;
      break;
    case Call::kPost:
      exposure_.state = Exposure::kPosted;
      exposure_.after_fence = false;
      break;
    case Call::kFence:
      if (access_ != Access::kNone) closed_by_ = by;
      open_.close_all();
      open_.close_members();
      access_ = Access::kFenceOpen;
      exposure_.after_fence = exposure_.state == Exposure::kFence;
      if (exposure_.after_fence) exposure_.closed_by = by;
      exposure_.state = Exposure::kFence;
      break;
    default: break;
  }
}

}  // namespace farside::epochs
