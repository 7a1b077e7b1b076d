// SPDX-License-Identifier: BSD-3-Clause
// What MPI allows when, as two tables. For each call and each state of the access side (what this process may do to
// other windows) and of the exposure side (what others may do to its window) a table holds the next state or the
// broken rule. A call is legal if both tables allow it. EpochState executes the tables, and the build prints them
// (doc/rules.md). Sections are those of MPI 4.0; MPI 3.1 has them in chapter 11.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "epochs/rules/violation.hpp"

namespace farside::epochs {

// The access side of a window at one process.
enum class Access : std::uint8_t {
  kNone,         // no epoch is open
  kFenceOpen,    // a fence was called and no operation issued since; the next call may open another epoch instead
  kFenceActive,  // operations were issued since the last fence; only a fence ends this state
  kStarting,     // a thread is in start and waits for posts; no thread may use the epoch yet
  kStarted,      // between start and complete; the members are the group of the start
  kLocked,       // between lock and unlock; the members are the locked targets; other targets may be waited for
  kLockingAll,   // a thread is in lock_all and waits
  kLockedAll,    // between lock_all and unlock_all
};
inline constexpr std::size_t kAccessStates = 8;

// The exposure side of the same window at the same process.
enum class Exposure : std::uint8_t {
  kNone,
  kFence,    // since a fence without MPI_MODE_NOSUCCEED
  kPosting,  // a thread is in post, and not all origins are notified
  kPosted,   // between post and wait, or the test that returns true
  kWaiting,  // a thread is in wait, or in the test that returns true
};
inline constexpr std::size_t kExposureStates = 5;

enum class Call : std::uint8_t {
  kOperation,         // put, get, accumulate, get_accumulate, fetch_and_op, compare_and_swap
  kRequestOperation,  // rput, rget, raccumulate, rget_accumulate
  kFlush,             // flush, flush_local
  kFlushAll,          // flush_all, flush_local_all
  kSync,
  kFence,
  kPost,
  kStart,
  kComplete,
  kWait,
  kTest,
  kLock,
  kUnlock,
  kLockAll,
  kUnlockAll,
  kFree,
};
inline constexpr std::size_t kCalls = 16;

// The name of the call in messages. Calls that stand for a family have no single MPI name.
constexpr const char* call_name(Call call) {
  constexpr const char* kNames[kCalls] = {"an operation",       "a request-based operation",
                                          "MPI_Win_flush",      "MPI_Win_flush_all",
                                          "MPI_Win_sync",       "MPI_Win_fence",
                                          "MPI_Win_post",       "MPI_Win_start",
                                          "MPI_Win_complete",   "MPI_Win_wait",
                                          "MPI_Win_test",       "MPI_Win_lock",
                                          "MPI_Win_unlock",     "MPI_Win_lock_all",
                                          "MPI_Win_unlock_all", "MPI_Win_free"};
  return kNames[static_cast<std::size_t>(call)];
}

enum class Rule : std::uint8_t {
  kNone,
  kNoEpoch,
  kNotInGroup,
  kNotLocked,
  kRequestPassive,
  kFlushPassive,
  kFenceInStart,
  kFenceInLock,
  kFenceInPost,
  kNoPrecede,
  kPostTwice,
  kWaitNotPosted,
  kStartTwice,
  kStartInFence,
  kStartInLock,
  kCompleteNotStarted,
  kLockTwice,
  kLockInFence,
  kLockInStart,
  kLockInLockAll,
  kUnlockNotLocked,
  kUnlockInLockAll,
  kLockAllTwice,
  kLockAllInLock,
  kUnlockAllNotLocked,
  kUnlockAllInLock,
  kExposedLockAll,
  kLockedAllPost,
  kFreeInFence,
  kFreeInStart,
  kFreeInLock,
  kFreeInPost,
  kBadTarget,
  kBadGroup,
  kNoPut,
  kStillStarting,
  kStillLocking,
  kStillLockingAll,
  kStillPosting,
  kWaitTwice,
  kNoMemory,
};
inline constexpr std::size_t kRules = static_cast<std::size_t>(Rule::kNoMemory) + 1;

namespace sections {
inline constexpr const char* kEpochs = "MPI 4.0 section 12.5 (3.1: 11.5)";
inline constexpr const char* kFence = "MPI 4.0 section 12.5.1 (3.1: 11.5.1)";
inline constexpr const char* kActive = "MPI 4.0 section 12.5.2 (3.1: 11.5.2)";
inline constexpr const char* kLock = "MPI 4.0 section 12.5.3 (3.1: 11.5.3)";
inline constexpr const char* kFlush = "MPI 4.0 section 12.5.4 (3.1: 11.5.4)";
inline constexpr const char* kAssertions = "MPI 4.0 section 12.5.5 (3.1: 11.5.5)";
inline constexpr const char* kRequests = "MPI 4.0 section 12.3.5 (3.1: 11.3.5)";
inline constexpr const char* kFree = "MPI 4.0 section 12.2.5 (3.1: 11.2.5)";
inline constexpr const char* kArguments = "MPI 4.0 section 12.6.2 (3.1: 11.6.2)";
}  // namespace sections

// The text of each rule, in the order of Rule.
inline constexpr Violation kViolations[kRules] = {
    {},
    {ErrorClass::kRmaSync, "operation outside any access epoch",
     "open one first, with MPI_Win_fence, MPI_Win_start, MPI_Win_lock or MPI_Win_lock_all", sections::kEpochs},
    {ErrorClass::kRmaSync, "operation on a target that is not in the group given to MPI_Win_start",
     "add the target to that group", sections::kActive},
    {ErrorClass::kRmaSync, "the target is not locked", "lock this target first with MPI_Win_lock", sections::kLock},
    {ErrorClass::kRmaSync, "request-based operation outside a passive target epoch",
     "lock the target first with MPI_Win_lock or MPI_Win_lock_all, or use the operation without a request",
     sections::kRequests},
    {ErrorClass::kRmaSync, "flush outside a passive target epoch",
     "flush between lock and unlock; a fence or start epoch is completed by MPI_Win_fence or "
     "MPI_Win_complete",
     sections::kFlush},
    {ErrorClass::kRmaSync, "fence while an epoch of MPI_Win_start is open", "call MPI_Win_complete first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "fence while this process holds locks", "unlock first", sections::kEpochs},
    {ErrorClass::kRmaSync, "fence while the own window is posted", "call MPI_Win_wait first", sections::kEpochs},
    {ErrorClass::kAssert, "MPI_MODE_NOPRECEDE, but operations were issued since the last fence",
     "leave MPI_MODE_NOPRECEDE out of this fence (on all processes)", sections::kAssertions},
    {ErrorClass::kRmaSync, "post while the window is already posted", "call MPI_Win_wait first", sections::kEpochs},
    {ErrorClass::kRmaSync, "wait or test without a post", "call MPI_Win_post first; a test that was true needs no wait",
     sections::kActive},
    {ErrorClass::kRmaSync, "start while an epoch of MPI_Win_start is open", "call MPI_Win_complete first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "start while operations of a fence epoch are open", "call MPI_Win_fence first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "start while this process holds locks", "unlock first", sections::kEpochs},
    {ErrorClass::kRmaSync, "complete without a start", "call MPI_Win_start first", sections::kActive},
    {ErrorClass::kRmaSync, "lock of a target that this process has already locked",
     "unlock the target first; a lock cannot change its type", sections::kLock},
    {ErrorClass::kRmaSync, "lock while operations of a fence epoch are open", "call MPI_Win_fence first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "lock while an epoch of MPI_Win_start is open", "call MPI_Win_complete first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "lock while all targets are locked", "call MPI_Win_unlock_all first", sections::kEpochs},
    {ErrorClass::kRmaSync, "unlock of a target that is not locked", "unlock each locked target once", sections::kLock},
    {ErrorClass::kRmaSync, "unlock of one target while all are locked by MPI_Win_lock_all",
     "call MPI_Win_unlock_all instead", sections::kLock},
    {ErrorClass::kRmaSync, "lock_all while all targets are already locked", "call MPI_Win_unlock_all first",
     sections::kEpochs},
    {ErrorClass::kRmaSync, "lock_all while single targets are locked", "unlock them first", sections::kEpochs},
    {ErrorClass::kRmaSync, "unlock_all without a lock_all", "call MPI_Win_lock_all first", sections::kLock},
    {ErrorClass::kRmaSync, "unlock_all of locks taken by MPI_Win_lock", "call MPI_Win_unlock for each target",
     sections::kLock},
    {ErrorClass::kRmaSync, "lock_all, which locks the own window too, while that is posted", "call MPI_Win_wait first",
     sections::kLock},
    {ErrorClass::kRmaSync, "post while the own window is locked by this process's MPI_Win_lock_all",
     "call MPI_Win_unlock_all first", sections::kLock},
    {ErrorClass::kRmaSync, "free while operations of a fence epoch are open", "call MPI_Win_fence first",
     sections::kFree},
    {ErrorClass::kRmaSync, "free while an epoch of MPI_Win_start is open", "call MPI_Win_complete first",
     sections::kFree},
    {ErrorClass::kRmaSync, "free while this process holds locks", "unlock first", sections::kFree},
    {ErrorClass::kRmaSync, "free while the own window is posted", "call MPI_Win_wait first", sections::kFree},
    {ErrorClass::kRank, "the target is not a rank of the window", "use 0 to the size of the window's group less 1",
     sections::kArguments},
    {ErrorClass::kGroup, "a member of the group is not a process of the window",
     "make the group from the window's own group", sections::kActive},
    {ErrorClass::kRmaSync, "the target promised MPI_MODE_NOPUT, but this call updates its window",
     "leave MPI_MODE_NOPUT out at the target, in its MPI_Win_post or MPI_Win_fence", sections::kAssertions},
    {ErrorClass::kRmaSync, "another thread still waits in MPI_Win_start, which opens this epoch",
     "use and complete the epoch after that call has returned", sections::kActive},
    {ErrorClass::kRmaSync, "another thread still waits for this lock in MPI_Win_lock",
     "use and unlock the target after that call has returned", sections::kLock},
    {ErrorClass::kRmaSync, "another thread still waits in MPI_Win_lock_all",
     "use and unlock the targets after that call has returned", sections::kLock},
    {ErrorClass::kRmaSync, "another thread is still in the MPI_Win_post of this exposure",
     "call MPI_Win_wait or MPI_Win_test after that call has returned", sections::kActive},
    {ErrorClass::kRmaSync, "another thread already waits for the end of this exposure",
     "call MPI_Win_wait once for each MPI_Win_post", sections::kActive},
    {ErrorClass::kNoMemory, "no memory for the epoch's bookkeeping", "one or two bits per process are needed", ""},
};

constexpr const Violation& violation(Rule rule) { return kViolations[static_cast<std::size_t>(rule)]; }

// Why a call that breaks the rule ends with FARSIDE_CHECK=warn as well (in the cells that say so).
constexpr const char* why_it_ends(Rule rule) {
  switch (rule) {
    case Rule::kPostTwice: return "the completes of two exposures cannot be told apart";
    case Rule::kStartTwice: return "the first group would never be notified of its end";
    case Rule::kLockTwice:
    case Rule::kLockInLockAll: return "an exclusive lock where a shared one is held would wait for itself";
    case Rule::kLockAllInLock: return "it may wait for a process that waits for one of these locks";
    case Rule::kStillStarting:
    case Rule::kStillLocking:
    case Rule::kStillLockingAll:
    case Rule::kStillPosting:
    case Rule::kWaitTwice: return "that call needs its epoch";
    case Rule::kBadTarget:
    case Rule::kBadGroup: return "there is no such process";
    default: return "";
  }
}

// One entry of a table: the effect of a call in a state.
template <class State>
struct Cell {
  enum class Kind : std::uint8_t {
    kGo,           // moves to `next`
    kRefuse,       // breaks `rule`
    kIfMember,     // moves to `next` if the target is a member (of the start group, or locked), else breaks `rule`
    kIfNotMember,  // moves to `next` if the target is not a member, else breaks `rule`
    kLeave,  // removes the member: moves to `next`, or to none after the last one; breaks `rule` if it is no member
    kFence,  // moves to `next`, or to none with MPI_MODE_NOSUCCEED; MPI_MODE_NOPRECEDE breaks `rule`, if any
  };
  // The effect of a call that breaks `rule` with FARSIDE_CHECK=warn, or off.
  enum class Broken : std::uint8_t {
    kEnds,   // it is refused as well (why_it_ends)
    kKeeps,  // it is carried out, and the state stays
    kMoves,  // it is carried out, and moves to `next`; the state before is resumed at the end of that epoch
  };
  Kind kind = Kind::kGo;
  State next = State::kNone;
  Rule rule = Rule::kNone;
  Broken broken = Broken::kEnds;
};

using AccessCell = Cell<Access>;
using ExposureCell = Cell<Exposure>;

namespace table {
using enum Rule;

template <class State>
constexpr Cell<State> go(State next) {
  return {Cell<State>::Kind::kGo, next, kNone};
}
template <class State = Access>
constexpr Cell<State> end(Rule rule) {
  return {Cell<State>::Kind::kRefuse, State::kNone, rule};
}
// Not allowed, but carried out with FARSIDE_CHECK=warn.
template <class State = Access>
constexpr Cell<State> no(Rule rule) {
  return {Cell<State>::Kind::kRefuse, State::kNone, rule, Cell<State>::Broken::kKeeps};
}
constexpr AccessCell no(Rule rule, Access next) {
  return {AccessCell::Kind::kRefuse, next, rule, AccessCell::Broken::kMoves};
}
constexpr AccessCell member(Access next, Rule rule) {
  return {AccessCell::Kind::kIfMember, next, rule, AccessCell::Broken::kKeeps};
}
constexpr AccessCell fresh(Access next, Rule rule) {
  return {AccessCell::Kind::kIfNotMember, next, rule, AccessCell::Broken::kKeeps};
}
constexpr AccessCell leave(Access next, Rule rule) {
  return {AccessCell::Kind::kLeave, next, rule, AccessCell::Broken::kKeeps};
}
template <class State>
constexpr Cell<State> fence(State next, Rule broken = kNone) {
  return {Cell<State>::Kind::kFence, next, broken, Cell<State>::Broken::kKeeps};
}

inline constexpr AccessCell kToNone = go(Access::kNone);
inline constexpr AccessCell kToOpen = go(Access::kFenceOpen);
inline constexpr AccessCell kToActive = go(Access::kFenceActive);
inline constexpr AccessCell kToStarting = go(Access::kStarting);
inline constexpr AccessCell kToStarted = go(Access::kStarted);
inline constexpr AccessCell kToLocked = go(Access::kLocked);
inline constexpr AccessCell kToLockingAll = go(Access::kLockingAll);
inline constexpr AccessCell kToAll = go(Access::kLockedAll);
inline constexpr AccessCell kIfInGroup = member(Access::kStarted, kNotInGroup);
inline constexpr AccessCell kIfLocked = member(Access::kLocked, kNotLocked);
inline constexpr AccessCell kIfFresh = fresh(Access::kLocked, kLockTwice);
inline constexpr AccessCell kLeaves = leave(Access::kLocked, kUnlockNotLocked);
inline constexpr AccessCell kFenceOpens = fence(Access::kFenceOpen);
inline constexpr AccessCell kFenceEnds = fence(Access::kFenceOpen, kNoPrecede);

inline constexpr ExposureCell kToHidden = go(Exposure::kNone);
inline constexpr ExposureCell kToFence = go(Exposure::kFence);
inline constexpr ExposureCell kToPosting = go(Exposure::kPosting);
inline constexpr ExposureCell kToPosted = go(Exposure::kPosted);
inline constexpr ExposureCell kToWaiting = go(Exposure::kWaiting);
inline constexpr ExposureCell kFenceExposes = fence(Exposure::kFence);
constexpr ExposureCell refuse(Rule rule) { return no<Exposure>(rule); }
constexpr ExposureCell stop(Rule rule) { return end<Exposure>(rule); }

template <class State, std::size_t kStates>
struct Row {
  Call call;
  Cell<State> in[kStates];
};

// If a cell leads to the state of its own column, the call is allowed and changes nothing.
// clang-format off
inline constexpr Row<Access, kAccessStates> kAccess[kCalls] = {
    // call                    none                     fence open               fence active                          starting                              started                               locked                   locking all              locked all
    {Call::kOperation,        {no(kNoEpoch),            kToActive,               kToActive,                            no(kStillStarting),                   kIfInGroup,                           kIfLocked,               no(kStillLockingAll),    kToAll}},
    {Call::kRequestOperation, {no(kRequestPassive),     no(kRequestPassive),     no(kRequestPassive),                  no(kRequestPassive),                  no(kRequestPassive),                  kIfLocked,               no(kStillLockingAll),    kToAll}},
    {Call::kFlush,            {no(kFlushPassive),       no(kFlushPassive),       no(kFlushPassive),                    no(kFlushPassive),                    no(kFlushPassive),                    kIfLocked,               no(kStillLockingAll),    kToAll}},
    {Call::kFlushAll,         {no(kFlushPassive),       no(kFlushPassive),       no(kFlushPassive),                    no(kFlushPassive),                    no(kFlushPassive),                    kToLocked,               no(kStillLockingAll),    kToAll}},
    {Call::kSync,             {kToNone,                 kToOpen,                 kToActive,                            kToStarting,                          kToStarted,                           kToLocked,               kToLockingAll,           kToAll}},
    {Call::kFence,            {kFenceOpens,             kFenceOpens,             kFenceEnds,                           no(kFenceInStart),                    no(kFenceInStart),                    no(kFenceInLock),        no(kFenceInLock),        no(kFenceInLock)}},
    {Call::kPost,             {kToNone,                 kToOpen,                 kToActive,                            kToStarting,                          kToStarted,                           kToLocked,               no(kLockedAllPost),      no(kLockedAllPost)}},
    {Call::kStart,            {kToStarted,              kToStarted,              no(kStartInFence, Access::kStarted),  end(kStartTwice),                     end(kStartTwice),                     no(kStartInLock),        no(kStartInLock),        no(kStartInLock)}},
    {Call::kComplete,         {no(kCompleteNotStarted), no(kCompleteNotStarted), no(kCompleteNotStarted),              end(kStillStarting),                  kToNone,                              no(kCompleteNotStarted), no(kCompleteNotStarted), no(kCompleteNotStarted)}},
    {Call::kWait,             {kToNone,                 kToOpen,                 kToActive,                            kToStarting,                          kToStarted,                           kToLocked,               kToLockingAll,           kToAll}},
    {Call::kTest,             {kToNone,                 kToOpen,                 kToActive,                            kToStarting,                          kToStarted,                           kToLocked,               kToLockingAll,           kToAll}},
    {Call::kLock,             {kToLocked,               kToLocked,               no(kLockInFence, Access::kLocked),    no(kLockInStart, Access::kLocked),    no(kLockInStart, Access::kLocked),    kIfFresh,                end(kStillLockingAll),   no(kLockInLockAll)}},
    {Call::kUnlock,           {no(kUnlockNotLocked),    no(kUnlockNotLocked),    no(kUnlockNotLocked),                 no(kUnlockNotLocked),                 no(kUnlockNotLocked),                 kLeaves,                 no(kUnlockInLockAll),    no(kUnlockInLockAll)}},
    {Call::kLockAll,          {kToAll,                  kToAll,                  no(kLockInFence, Access::kLockedAll), no(kLockInStart, Access::kLockedAll), no(kLockInStart, Access::kLockedAll), end(kLockAllInLock),     end(kStillLockingAll),   no(kLockAllTwice)}},
    {Call::kUnlockAll,        {no(kUnlockAllNotLocked), no(kUnlockAllNotLocked), no(kUnlockAllNotLocked),              no(kUnlockAllNotLocked),              no(kUnlockAllNotLocked),              no(kUnlockAllInLock),    end(kStillLockingAll),   kToNone}},
    {Call::kFree,             {kToNone,                 kToNone,                 no(kFreeInFence),                     end(kStillStarting),                  no(kFreeInStart),                     no(kFreeInLock),         end(kStillLockingAll),   no(kFreeInLock)}},
};

inline constexpr Row<Exposure, kExposureStates> kExposure[kCalls] = {
    // call                    none                    fence                   posting                  posted                   waiting
    {Call::kOperation,        {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kRequestOperation, {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kFlush,            {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kFlushAll,         {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kSync,             {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kFence,            {kFenceExposes,          kFenceExposes,          refuse(kFenceInPost),    refuse(kFenceInPost),    refuse(kFenceInPost)}},
    {Call::kPost,             {kToPosted,              kToPosted,              stop(kPostTwice),        stop(kPostTwice),        stop(kPostTwice)}},
    {Call::kStart,            {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kComplete,         {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kWait,             {refuse(kWaitNotPosted), refuse(kWaitNotPosted), stop(kStillPosting),     kToPosted,               stop(kWaitTwice)}},
    {Call::kTest,             {refuse(kWaitNotPosted), refuse(kWaitNotPosted), stop(kStillPosting),     kToPosted,               stop(kWaitTwice)}},
    {Call::kLock,             {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kUnlock,           {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kLockAll,          {kToHidden,              kToFence,               refuse(kExposedLockAll), refuse(kExposedLockAll), refuse(kExposedLockAll)}},
    {Call::kUnlockAll,        {kToHidden,              kToFence,               kToPosting,              kToPosted,               kToWaiting}},
    {Call::kFree,             {kToHidden,              kToHidden,              stop(kStillPosting),     refuse(kFreeInPost),     stop(kWaitTwice)}},
};
// clang-format on
}  // namespace table

constexpr const AccessCell& cell(Call call, Access state) {
  return table::kAccess[static_cast<std::size_t>(call)].in[static_cast<std::size_t>(state)];
}
constexpr const ExposureCell& cell(Call call, Exposure state) {
  return table::kExposure[static_cast<std::size_t>(call)].in[static_cast<std::size_t>(state)];
}

// Which kinds of cells occur in the row of a call. If the call is a constant, the compiler removes the code for the
// kinds that do not occur.
struct RowShape {
  bool access = false;    // some state of the access side refuses the call or is changed by it
  bool exposure = false;  // likewise of the exposure side
  bool members = false;   // some state asks whether the target is a member
};
inline constexpr auto kShapes = [] {
  std::array<RowShape, kCalls> shapes{};
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto call = static_cast<Call>(i);
    for (std::size_t k = 0; k < kAccessStates; ++k) {
      const auto state = static_cast<Access>(k);
      const AccessCell::Kind kind = cell(call, state).kind;
      using enum AccessCell::Kind;
      if (kind != kGo || cell(call, state).next != state) shapes[i].access = true;
      if (kind == kIfMember || kind == kIfNotMember || kind == kLeave) shapes[i].members = true;
    }
    for (std::size_t k = 0; k < kExposureStates; ++k) {
      const auto state = static_cast<Exposure>(k);
      if (cell(call, state).kind != ExposureCell::Kind::kGo || cell(call, state).next != state)
        shapes[i].exposure = true;
    }
  }
  return shapes;
}();
constexpr const RowShape& shape(Call call) { return kShapes[static_cast<std::size_t>(call)]; }

// The rows are in the order of Call.
static_assert([] {
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto call = static_cast<Call>(i);
    if (table::kAccess[i].call != call || table::kExposure[i].call != call) return false;
  }
  return true;
}());

}  // namespace farside::epochs
