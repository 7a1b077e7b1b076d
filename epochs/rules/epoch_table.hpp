// SPDX-License-Identifier: BSD-3-Clause
// MPI's rules of epochs as two tables. For each call and each state of the access side (what this process may do to
// other windows) and of the exposure side (what others may do to its window) a table holds the next state or the
// broken rule. A call is legal if both tables allow it. EpochState executes the tables, and the build prints them
// (doc/rules.md). Sections are those of MPI 4.0; MPI 3.1 has them in chapter 11.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside::epochs {

// The MPI error classes of violations; pmpi/ turns them into MPI_ERR_*.
enum class ErrorClass : std::uint8_t {
  kNone,
  kRmaSync,      // MPI_ERR_RMA_SYNC: invalid synchronization of RMA calls
  kRmaConflict,  // MPI_ERR_RMA_CONFLICT: conflicting accesses to a window
  kRank,         // MPI_ERR_RANK: the target is not a rank of the window
  kGroup,        // MPI_ERR_GROUP: a member of the group is not a process of the window
  kAssert,       // MPI_ERR_ASSERT: an assertion that is not true
  kNoMemory,     // MPI_ERR_NO_MEM: no memory for farside's own bookkeeping
};

// A rule, or the report of a call that breaks it. It consists of constants and allocates nothing.
struct [[nodiscard]] Violation {
  ErrorClass error = ErrorClass::kNone;
  const char* what = "";     // the broken rule, in lower case, without a full stop
  const char* advice = "";   // the remedy
  const char* section = "";  // of MPI 4.0 (chapter 12) and of 3.1 (chapter 11); empty if the rule is not the standard's
  bool carried = false;      // refused, but carried out with FARSIDE_CHECK=warn
  const char* ends = "";     // why a call ends with FARSIDE_CHECK=warn as well, in the cells that say so

  // True if a rule is broken.
  constexpr explicit operator bool() const { return error != ErrorClass::kNone; }
};

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

// The rules, each in one place: its text here, its cells below.
namespace rules {
using namespace sections;

constexpr const char* kNeedsEpoch = "that call needs its epoch";
constexpr const char* kWaitsForItself = "an exclusive lock where a shared one is held would deadlock with itself";
constexpr const char* kNoProcess = "there is no such process";

constexpr Violation rule(ErrorClass error, const char* what, const char* advice, const char* section,
                         const char* ends = "") {
  return {error, what, advice, section, false, ends};
}
constexpr Violation sync(const char* what, const char* advice, const char* section, const char* ends = "") {
  return rule(ErrorClass::kRmaSync, what, advice, section, ends);
}

inline constexpr auto kNoEpoch =
    sync("operation outside any access epoch",
         "open one first, with MPI_Win_fence, MPI_Win_start, MPI_Win_lock or MPI_Win_lock_all", kEpochs);
inline constexpr auto kNotInGroup = sync("operation on a target that is not in the group given to MPI_Win_start",
                                         "add the target to that group", kActive);
inline constexpr auto kNotLocked = sync("the target is not locked", "lock this target first with MPI_Win_lock", kLock);
inline constexpr auto kRequestPassive = sync(
    "request-based operation outside a passive target epoch",
    "lock the target first with MPI_Win_lock or MPI_Win_lock_all, or use the operation without a request", kRequests);
inline constexpr auto kFlushPassive = sync(
    "flush outside a passive target epoch",
    "flush between lock and unlock; a fence or start epoch is completed by MPI_Win_fence or MPI_Win_complete", kFlush);
inline constexpr auto kFenceInStart =
    sync("fence while an epoch of MPI_Win_start is open", "call MPI_Win_complete first", kEpochs);
inline constexpr auto kFenceInLock = sync("fence while this process holds locks", "unlock first", kEpochs);
inline constexpr auto kFenceInPost = sync("fence while the own window is posted", "call MPI_Win_wait first", kEpochs);
inline constexpr auto kNoPrecede =
    rule(ErrorClass::kAssert, "MPI_MODE_NOPRECEDE, but operations were issued since the last fence",
         "leave MPI_MODE_NOPRECEDE out of this fence (on all processes)", kAssertions);
inline constexpr auto kPostTwice = sync("post while the window is already posted", "call MPI_Win_wait first", kEpochs,
                                        "the completes of two exposures cannot be told apart");
inline constexpr auto kWaitNotPosted =
    sync("wait or test without a post", "call MPI_Win_post first; a test that was true needs no wait", kActive);
inline constexpr auto kStartTwice = sync("start while an epoch of MPI_Win_start is open", "call MPI_Win_complete first",
                                         kEpochs, "the first group would never be notified of its end");
inline constexpr auto kStartInFence =
    sync("start while operations of a fence epoch are open", "call MPI_Win_fence first", kEpochs);
inline constexpr auto kStartInLock = sync("start while this process holds locks", "unlock first", kEpochs);
inline constexpr auto kCompleteNotStarted = sync("complete without a start", "call MPI_Win_start first", kActive);
inline constexpr auto kLockTwice =
    sync("lock of a target that this process has already locked",
         "unlock the target first; a lock cannot change its type", kLock, kWaitsForItself);
inline constexpr auto kLockInFence =
    sync("lock while operations of a fence epoch are open", "call MPI_Win_fence first", kEpochs);
inline constexpr auto kLockInStart =
    sync("lock while an epoch of MPI_Win_start is open", "call MPI_Win_complete first", kEpochs);
inline constexpr auto kLockInLockAll =
    sync("lock while all targets are locked", "call MPI_Win_unlock_all first", kEpochs, kWaitsForItself);
inline constexpr auto kUnlockNotLocked =
    sync("unlock of a target that is not locked", "unlock each locked target once", kLock);
inline constexpr auto kUnlockInLockAll =
    sync("unlock of one target while all are locked by MPI_Win_lock_all", "call MPI_Win_unlock_all instead", kLock);
inline constexpr auto kLockAllTwice =
    sync("lock_all while all targets are already locked", "call MPI_Win_unlock_all first", kEpochs);
inline constexpr auto kLockAllInLock = sync("lock_all while single targets are locked", "unlock them first", kEpochs,
                                            "it may wait for a process that waits for one of these locks");
inline constexpr auto kUnlockAllNotLocked = sync("unlock_all without a lock_all", "call MPI_Win_lock_all first", kLock);
inline constexpr auto kUnlockAllInLock =
    sync("unlock_all of locks taken by MPI_Win_lock", "call MPI_Win_unlock for each target", kLock);
inline constexpr auto kExposedLockAll =
    sync("lock_all, which locks the own window too, while that is posted", "call MPI_Win_wait first", kLock);
inline constexpr auto kLockedAllPost = sync("post while the own window is locked by this process's MPI_Win_lock_all",
                                            "call MPI_Win_unlock_all first", kLock);
inline constexpr auto kFreeInFence =
    sync("free while operations of a fence epoch are open", "call MPI_Win_fence first", kFree);
inline constexpr auto kFreeInStart =
    sync("free while an epoch of MPI_Win_start is open", "call MPI_Win_complete first", kFree);
inline constexpr auto kFreeInLock = sync("free while this process holds locks", "unlock first", kFree);
inline constexpr auto kFreeInPost = sync("free while the own window is posted", "call MPI_Win_wait first", kFree);
inline constexpr auto kBadTarget =
    rule(ErrorClass::kRank, "the target is not a rank of the window",
         "use a rank from 0 to the size of the window's group less 1", kArguments, kNoProcess);
inline constexpr auto kBadGroup = rule(ErrorClass::kGroup, "a member of the group is not a process of the window",
                                       "make the group from the window's own group", kActive, kNoProcess);
inline constexpr auto kNoPut =
    sync("the target promised MPI_MODE_NOPUT, but this call updates its window",
         "leave MPI_MODE_NOPUT out at the target, in its MPI_Win_post or MPI_Win_fence", kAssertions);
inline constexpr auto kStillStarting =
    sync("another thread still waits in MPI_Win_start, which opens this epoch",
         "use and complete the epoch after that call has returned", kActive, kNeedsEpoch);
inline constexpr auto kStillLocking =
    sync("another thread still waits for this lock in MPI_Win_lock",
         "use and unlock the target after that call has returned", kLock, kNeedsEpoch);
inline constexpr auto kStillLockingAll =
    sync("another thread still waits in MPI_Win_lock_all", "use and unlock the targets after that call has returned",
         kLock, kNeedsEpoch);
inline constexpr auto kStillPosting =
    sync("another thread is still in the MPI_Win_post of this exposure",
         "call MPI_Win_wait or MPI_Win_test after that call has returned", kActive, kNeedsEpoch);
inline constexpr auto kWaitTwice = sync("another thread already waits for the end of this exposure",
                                        "call MPI_Win_wait once for each MPI_Win_post", kActive, kNeedsEpoch);
inline constexpr auto kNoMemory =
    rule(ErrorClass::kNoMemory, "no memory for the epoch's bookkeeping", "one or two bits per process are needed", "");
}  // namespace rules

// One entry of a table: the effect of a call in a state.
template <class State>
struct Cell {
  enum class Kind : std::uint8_t {
    kStay,         // allowed, and changes nothing
    kGo,           // moves to `next`
    kRefuse,       // breaks `rule`
    kIfMember,     // allowed if the target is a member (of the start group, or locked), else breaks `rule`
    kIfNotMember,  // allowed if the target is not a member, which it becomes; else breaks `rule`
    kLeave,        // removes the member, after the last one moves to none; breaks `rule` if it is no member
    kFence,        // moves to `next`, or to none with MPI_MODE_NOSUCCEED; MPI_MODE_NOPRECEDE breaks `rule`, if any
  };
  // The effect of a call that breaks `rule` with FARSIDE_CHECK=warn, or off.
  enum class Broken : std::uint8_t {
    kKeeps,  // it is carried out, and the state stays
    kMoves,  // it is carried out, and moves to `next`; the state before is resumed at the end of that epoch
    kEnds,   // it is refused as well (Violation::ends)
  };
  Kind kind = Kind::kStay;
  State next = State::kNone;
  const Violation* rule = nullptr;
  Broken broken = Broken::kKeeps;
};

using AccessCell = Cell<Access>;
using ExposureCell = Cell<Exposure>;

namespace table {
using namespace rules;

inline constexpr AccessCell kStay;
constexpr AccessCell go(Access next) { return {AccessCell::Kind::kGo, next}; }
constexpr AccessCell no(const Violation& rule) { return {AccessCell::Kind::kRefuse, Access::kNone, &rule}; }
constexpr AccessCell no(const Violation& rule, Access next) {
  return {AccessCell::Kind::kRefuse, next, &rule, AccessCell::Broken::kMoves};
}
constexpr AccessCell end(const Violation& rule) {
  return {AccessCell::Kind::kRefuse, Access::kNone, &rule, AccessCell::Broken::kEnds};
}
inline constexpr AccessCell kToNone = go(Access::kNone);
inline constexpr AccessCell kToActive = go(Access::kFenceActive);
inline constexpr AccessCell kToStarted = go(Access::kStarted);
inline constexpr AccessCell kToLocked = go(Access::kLocked);
inline constexpr AccessCell kToAll = go(Access::kLockedAll);
inline constexpr AccessCell kIfInGroup{AccessCell::Kind::kIfMember, {}, &kNotInGroup};
inline constexpr AccessCell kIfLocked{AccessCell::Kind::kIfMember, {}, &kNotLocked};
inline constexpr AccessCell kIfFresh{AccessCell::Kind::kIfNotMember, {}, &kLockTwice};
inline constexpr AccessCell kLeaves{AccessCell::Kind::kLeave, {}, &kUnlockNotLocked};
inline constexpr AccessCell kFenceOpens{AccessCell::Kind::kFence, Access::kFenceOpen};
inline constexpr AccessCell kFenceEnds{AccessCell::Kind::kFence, Access::kFenceOpen, &kNoPrecede};

inline constexpr ExposureCell kSame;
inline constexpr ExposureCell kToHidden{ExposureCell::Kind::kGo, Exposure::kNone};
inline constexpr ExposureCell kToPosted{ExposureCell::Kind::kGo, Exposure::kPosted};
inline constexpr ExposureCell kExposes{ExposureCell::Kind::kFence, Exposure::kFence};
constexpr ExposureCell refuse(const Violation& rule) { return {ExposureCell::Kind::kRefuse, Exposure::kNone, &rule}; }
constexpr ExposureCell stop(const Violation& rule) {
  return {ExposureCell::Kind::kRefuse, Exposure::kNone, &rule, ExposureCell::Broken::kEnds};
}

// The table of these rows. A call without a row concerns the other side only, and stays in all states of this one.
template <class State, std::size_t kStates>
struct Row {
  Call call;
  Cell<State> in[kStates];
};
template <class State, std::size_t kStates, std::size_t kRows>
constexpr auto by_call(const Row<State, kStates> (&rows)[kRows]) {
  std::array<std::array<Cell<State>, kStates>, kCalls> cells{};
  for (const Row<State, kStates>& row : rows) {
    for (std::size_t i = 0; i < kStates; ++i) cells[static_cast<std::size_t>(row.call)][i] = row.in[i];
  }
  return cells;
}

// clang-format off
inline constexpr auto kAccess = by_call<Access, kAccessStates>({
    // call                   none                      fence open               fence active                          starting                              started                               locked                     locking all              locked all
    {Call::kOperation,        {no(kNoEpoch),            kToActive,               kStay,                                no(kStillStarting),                   kIfInGroup,                           kIfLocked,               no(kStillLockingAll),    kStay}},
    {Call::kRequestOperation, {no(kRequestPassive),     no(kRequestPassive),     no(kRequestPassive),                  no(kRequestPassive),                  no(kRequestPassive),                  kIfLocked,               no(kStillLockingAll),    kStay}},
    {Call::kFlush,            {no(kFlushPassive),       no(kFlushPassive),       no(kFlushPassive),                    no(kFlushPassive),                    no(kFlushPassive),                    kIfLocked,               no(kStillLockingAll),    kStay}},
    {Call::kFlushAll,         {no(kFlushPassive),       no(kFlushPassive),       no(kFlushPassive),                    no(kFlushPassive),                    no(kFlushPassive),                    kStay,                   no(kStillLockingAll),    kStay}},
    {Call::kFence,            {kFenceOpens,             kFenceOpens,             kFenceEnds,                           no(kFenceInStart),                    no(kFenceInStart),                    no(kFenceInLock),        no(kFenceInLock),        no(kFenceInLock)}},
    {Call::kPost,             {kStay,                   kStay,                   kStay,                                kStay,                                kStay,                                kStay,                   no(kLockedAllPost),      no(kLockedAllPost)}},
    {Call::kStart,            {kToStarted,              kToStarted,              no(kStartInFence, Access::kStarted),  end(kStartTwice),                     end(kStartTwice),                     no(kStartInLock),        no(kStartInLock),        no(kStartInLock)}},
    {Call::kComplete,         {no(kCompleteNotStarted), no(kCompleteNotStarted), no(kCompleteNotStarted),              end(kStillStarting),                  kToNone,                              no(kCompleteNotStarted), no(kCompleteNotStarted), no(kCompleteNotStarted)}},
    {Call::kLock,             {kToLocked,               kToLocked,               no(kLockInFence, Access::kLocked),    no(kLockInStart, Access::kLocked),    no(kLockInStart, Access::kLocked),    kIfFresh,                end(kStillLockingAll),   no(kLockInLockAll)}},
    {Call::kUnlock,           {no(kUnlockNotLocked),    no(kUnlockNotLocked),    no(kUnlockNotLocked),                 no(kUnlockNotLocked),                 no(kUnlockNotLocked),                 kLeaves,                 no(kUnlockInLockAll),    no(kUnlockInLockAll)}},
    {Call::kLockAll,          {kToAll,                  kToAll,                  no(kLockInFence, Access::kLockedAll), no(kLockInStart, Access::kLockedAll), no(kLockInStart, Access::kLockedAll), end(kLockAllInLock),     end(kStillLockingAll),   no(kLockAllTwice)}},
    {Call::kUnlockAll,        {no(kUnlockAllNotLocked), no(kUnlockAllNotLocked), no(kUnlockAllNotLocked),              no(kUnlockAllNotLocked),              no(kUnlockAllNotLocked),              no(kUnlockAllInLock),    end(kStillLockingAll),   kToNone}},
    {Call::kFree,             {kToNone,                 kToNone,                 no(kFreeInFence),                     end(kStillStarting),                  no(kFreeInStart),                     no(kFreeInLock),         end(kStillLockingAll),   no(kFreeInLock)}},
});

inline constexpr auto kExposure = by_call<Exposure, kExposureStates>({
    // call          none                    fence                   posting                  posted                   waiting
    {Call::kFence,   {kExposes,              kExposes,               refuse(kFenceInPost),    refuse(kFenceInPost),    refuse(kFenceInPost)}},
    {Call::kPost,    {kToPosted,             kToPosted,              stop(kPostTwice),        stop(kPostTwice),        stop(kPostTwice)}},
    {Call::kWait,    {refuse(kWaitNotPosted), refuse(kWaitNotPosted), stop(kStillPosting),    kSame,                   stop(kWaitTwice)}},
    {Call::kTest,    {refuse(kWaitNotPosted), refuse(kWaitNotPosted), stop(kStillPosting),    kSame,                   stop(kWaitTwice)}},
    {Call::kLockAll, {kSame,                 kSame,                  refuse(kExposedLockAll), refuse(kExposedLockAll), refuse(kExposedLockAll)}},
    {Call::kFree,    {kSame,                 kToHidden,              stop(kStillPosting),     refuse(kFreeInPost),     stop(kWaitTwice)}},
});
// clang-format on
}  // namespace table

constexpr const AccessCell& cell(Call call, Access state) {
  return table::kAccess[static_cast<std::size_t>(call)][static_cast<std::size_t>(state)];
}
constexpr const ExposureCell& cell(Call call, Exposure state) {
  return table::kExposure[static_cast<std::size_t>(call)][static_cast<std::size_t>(state)];
}

}  // namespace farside::epochs
