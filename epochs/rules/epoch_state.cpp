// SPDX-License-Identifier: BSD-3-Clause
// EpochState off the fast path: checks a call by the tables, then changes the state.
#include "epochs/rules/epoch_state.hpp"

#include <algorithm>
#include <utility>

namespace farside::epochs {

namespace {

constexpr const char* kFenceNoSucceed = "MPI_Win_fence with MPI_MODE_NOSUCCEED";

constexpr bool takes_target(Call call) {
  return call == Call::kOperation || call == Call::kRequestOperation || call == Call::kFlush || call == Call::kLock ||
         call == Call::kUnlock;
}

// Operations and flushes; their rules never end a call that is to be carried out.
bool changes_nothing(Call call) {
  return call == Call::kOperation || call == Call::kRequestOperation || call == Call::kFlush || call == Call::kFlushAll;
}

template <class State>
const Violation* broken(const Cell<State>& cell, bool is_member, FenceAssert assert) {
  using Kind = typename Cell<State>::Kind;
  switch (cell.kind) {
    case Kind::kStay:
    case Kind::kGo: break;
    case Kind::kRefuse: return cell.rule;
    case Kind::kIfMember:
    case Kind::kLeave: return is_member ? nullptr : cell.rule;
    case Kind::kIfNotMember: return is_member ? cell.rule : nullptr;
    case Kind::kFence: return assert.no_precede ? cell.rule : nullptr;
  }
  return nullptr;
}

bool is_valid(std::span<const int> group, unsigned ranks) {
  return std::ranges::all_of(group, [&](int rank) { return static_cast<unsigned>(rank) < ranks; });
}

// The same for the last group, or another one.
bool copy(std::span<const int> group, std::vector<int>& last) {
  return group.data() == last.data() || without_bad_alloc([&] { last.assign(group.begin(), group.end()); }).ok();
}

std::string counted(std::size_t n, const char* what = "target") {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}
std::string closed(const char* what, const char* by) {
  return by == nullptr ? "" : std::string(" (") + what + " was closed by " + by + ")";
}

}  // namespace

const EpochState::Report EpochState::kNoReport;

void ExposureSide::change(Call call, FenceAssert assert) {
  const ExposureCell& to = cell(call, state);
  const bool fence = to.kind == ExposureCell::Kind::kFence;
  if (!fence && to.kind != ExposureCell::Kind::kGo) return;
  const Exposure next = fence && assert.no_succeed ? Exposure::kNone : to.next;
  if (next != Exposure::kPosted && state != Exposure::kNone) closed_by = call_name(call);
  if (fence && assert.no_succeed) closed_by = kFenceNoSucceed;
  after_fence = state == Exposure::kFence;
  state = next;
}

const Violation* EpochState::broken_rule(Call call, int target, FenceAssert assert) const {
  if (takes_target(call) && static_cast<unsigned>(target) >= ranks_) return &rules::kBadTarget;
  if (!awaited_.empty()) [[unlikely]] {
    if (takes_target(call) && awaits(target)) return &rules::kStillLocking;
    if (call == Call::kFree || (call == Call::kFlushAll && locks_held() == 0)) return &rules::kStillLocking;
  }
  // member() does not see the group while an assertion of MPI_MODE_NOPUT is in force in this epoch.
  const bool is_member =
      takes_target(call) && (member(target) || (restricting_ && access_ == Access::kStarted &&
                                                !open_.members().empty() && open_.members().has(target)));
  const Violation* const rule = broken(cell(call, access_), is_member, assert);
  return rule != nullptr ? rule : broken(cell(call, exposure_.state), false, assert);
}

Violation EpochState::apply(Call call, int target, FenceAssert assert) {
  if (const Violation refused = check(call, target, assert)) [[unlikely]]
    return refused;
  change_state(call, target, assert);
  return {};
}

void EpochState::change_state(Call call, int target, FenceAssert assert, Access awaited) {
  exposure_.change(call, assert);
  using Kind = AccessCell::Kind;
  const AccessCell& to = cell(call, access_);
  if (to.kind == Kind::kFence) {
    if (access_ != Access::kNone) closed_by_ = call_name(call);
    if (assert.no_succeed) closed_by_ = kFenceNoSucceed;
    return enter(assert.no_succeed ? Access::kNone : to.next);
  }
  Access next = access_;
  if (to.kind == Kind::kLeave) {
    if (!member(target)) return;  // carried out
    drop(target);
    if (before_ == Access::kFenceOpen) before_ = Access::kNone;
    if (--locks_held_ == 0) next = Access::kNone;
  } else if (to.kind == Kind::kGo || to.broken == AccessCell::Broken::kMoves) {
    next = awaited != Access::kNone ? awaited : to.next;
  }
  if (next == access_) return;
  if (next == Access::kNone) {
    closed_by_ = call_name(call);
    return resume(false);
  }
  if (next != Access::kFenceActive) before_ = access_;  // an operation continues the epoch of the fence
  enter(next);
}

void EpochState::enter(Access next) {
  // Targets that are no longer allowed are closed first, and targets that are allowed now are opened last: readers take
  // no mutex.
  open_.close_members();
  open_.close_all();
  access_ = next;
  const bool passive = next == Access::kLocked || next == Access::kLockedAll;
  if (next == Access::kLockedAll || (next == Access::kFenceActive && !restricting_)) open_.open_all(passive);
  if (!open_.members().empty() && (next == Access::kLocked || (next == Access::kStarted && !restricting_)))
    open_.open_members(passive);
}

void EpochState::resume(bool refused) {
  Access next = std::exchange(before_, Access::kNone);
  if (next == Access::kFenceOpen && !refused) next = Access::kNone;
  again_.clear();
  locks_held_ = 0;
  if (next == Access::kStarting || next == Access::kStarted) add_started();
  enter(next);
  if (next == Access::kStarted) opened(Call::kStart);
}

Violation EpochState::violation_or_report(Call call, const Violation& rule, int target, bool ends) const {
  const auto refuses = [](const auto& cell) {
    using Of = std::remove_cvref_t<decltype(cell)>;
    return cell.kind == Of::Kind::kRefuse && cell.broken == Of::Broken::kEnds;
  };
  ends = ends || &rule == &rules::kBadTarget ||
         (!changes_nothing(call) &&
          (&rule == &rules::kStillLocking || refuses(cell(call, access_)) || refuses(cell(call, exposure_.state))));
  if (report_ == nullptr || ends) {
    Violation refused = rule;
    refused.carried = !ends;
    return refused;
  }
  if (call == Call::kOperation && access_ > Access::kStarted && started() &&
      std::ranges::find(started_group_, target) != started_group_.end())
    return {};  // allowed by the epoch of start below the locks
  if (*report_) (*report_)(rule, target);
  return {};
}

Violation EpochState::operate(int target, bool updates) {
  if (const Violation refused = check(Call::kOperation, target)) return refused;
  if (restricting_ && updates && no_put_.has(target)) {
    if (const Violation refused = violation_or_report(Call::kOperation, rules::kNoPut, target)) return refused;
  }
  change_state(Call::kOperation, target);
  return {};
}

void EpochState::asserted_no_put(int target) {
  if (report_ == &kNoReport || !no_put_.reserve(ranks_)) return;
  if (access_ == Access::kStarting && !open_.members().reserve(ranks_)) return;
  if (access_ == Access::kStarted && open_.has_single()) {  // operations take the slow path from now on
    if (!open_.members().reserve(ranks_)) return;
    const int single = open_.single();
    open_.close_single();
    open_.members().add(single);
  }
  open_.close_all();
  open_.close_members();
  no_put_.add(target);
  restricting_ = true;
}

Violation EpochState::post(std::span<const int> group) {
  if (!is_valid(group, ranks_)) return rules::kBadGroup;
  if (group.empty()) {
    exposure_.empty_post = true;
    return {};
  }
  if (const Violation refused = check(Call::kPost)) return refused;
  if (!copy(group, exposure_.group)) return rules::kNoMemory;
  change_state(Call::kPost);
  return {};
}

Violation EpochState::begin_wait() {
  const Violation refused = wait();
  if (refused) return refused;
  if (exposure_.state == Exposure::kPosted) {
    exposure_.state = Exposure::kWaiting;
  } else {
    exposure_.empty_post = false;
  }
  return {};
}

Violation EpochState::begin_start(std::span<const int> group) {
  if (!is_valid(group, ranks_)) return rules::kBadGroup;
  if (group.empty()) {
    empty_start_ = true;
    return {};
  }
  const bool below = access_ > Access::kStarted;
  if (below && before_ >= Access::kStarting)
    return violation_or_report(Call::kStart, rules::kStartTwice, kNoTarget, true);
  if (const Violation refused = check(Call::kStart)) return refused;
  if (group.size() > 1 && !open_.members().reserve(ranks_)) return rules::kNoMemory;
  if (!copy(group, started_group_)) return rules::kNoMemory;
  if (below) {
    before_ = Access::kStarting;
    return {};
  }
  forget_assertions();  // of a fence that no operation followed
  change_state(Call::kStart, kNoTarget, {}, Access::kStarting);
  add_started();
  return {};
}

Violation EpochState::complete() {
  if (access_ > Access::kStarted && started()) {
    before_ = Access::kNone;
    return {};
  }
  if (access_ != Access::kStarted && std::exchange(empty_start_, false)) return {};
  const bool ends = started();
  if (ends) clear_started();
  const Violation refused = apply(Call::kComplete);
  if (ends) forget_assertions();
  return refused;
}

// A lock, or a lock_all, of what is locked already.
Violation EpochState::lock_again(Call call, const Violation& rule, int target, bool ends) {
  if (const Violation refused = violation_or_report(call, rule, target, ends)) return refused;
  if (!without_bad_alloc([&] { again_.push_back(target); })) return rules::kNoMemory;
  ++locks_held_;
  return {};
}

// Ends a lock that was only counted; returns whether there is one.
bool EpochState::ends_counted(int target) {
  const auto counted = std::ranges::find(again_, target);
  if (counted == again_.end()) return false;
  again_.erase(counted);
  --locks_held_;
  return true;
}

Violation EpochState::begin_lock(int target, LockType type, LockType held) {
  if (const Violation* const rule = broken_rule(Call::kLock, target, {}); rule != nullptr) {
    if (rule == &rules::kLockTwice || rule == &rules::kLockInLockAll)
      return lock_again(Call::kLock, *rule, target, type == LockType::kExclusive && held != LockType::kExclusive);
    if (const Violation refused = violation_or_report(Call::kLock, *rule, target)) return refused;
    clear_started();  // it goes on below
  }
  // When opened() is called for an awaited target, another target may have become the single one.
  const bool alone = !open_.has_single() && awaited_.empty();
  if (!alone && !open_.members().reserve(ranks_)) return rules::kNoMemory;
  if (!without_bad_alloc([&] { awaited_.push_back(target); })) return rules::kNoMemory;
  change_state(Call::kLock, target);
  ++locks_held_;
  return {};
}

bool EpochState::awaits(int target) const { return std::ranges::find(awaited_, target) != awaited_.end(); }

void EpochState::opened(Call call, int target) {
  if (call == Call::kPost) {
    exposure_.state = Exposure::kPosted;
  } else if (call == Call::kLockAll) {
    enter(Access::kLockedAll);
  } else if (call == Call::kStart) {
    if (access_ > Access::kStarted) {
      before_ = Access::kStarted;
      return;
    }
    enter(Access::kStarted);
    if (started_group_.size() != 1) return;
    if (restricting_) {
      open_.members().add(started_group_[0]);
    } else {
      open_.open_single(started_group_[0], false);
    }
  } else {
    std::erase(awaited_, target);
    if (!open_.has_single()) return open_.open_single(target, true);
    open_.members().add(target);
    open_.open_members(true);
  }
}

void EpochState::refused(Call call, int target) {
  if (call == Call::kPost) {
    exposure_.state = exposure_.after_fence ? Exposure::kFence : Exposure::kNone;
  } else if (call == Call::kLockAll) {
    resume(true);
  } else if (call == Call::kLock) {
    if (std::erase(awaited_, target) == 0) drop(target);
    if (--locks_held_ == 0) resume(true);
  } else if (access_ > Access::kStarted) {
    before_ = Access::kNone;
  } else {
    clear_started();
    resume(true);
  }
}

Violation EpochState::begin_lock_all() {
  if (const Violation* const rule = broken_rule(Call::kLockAll, kNoTarget, {}); rule != nullptr) {
    if (rule == &rules::kLockAllTwice) return lock_again(Call::kLockAll, *rule, kNoTarget, false);
    if (const Violation refused = violation_or_report(Call::kLockAll, *rule, kNoTarget)) return refused;
    clear_started();
  }
  change_state(Call::kLockAll, kNoTarget, {}, Access::kLockingAll);
  return {};
}

std::string EpochState::describe_access() const {
  const auto targets = [](std::size_t n, const char* how) {
    return counted(n) + (n == 1 ? " is " : " are ") + how + " (MPI_Win_lock)";
  };
  const auto held = static_cast<std::size_t>(locks_held());
  switch (access_) {
    case Access::kNone: return "no access epoch is open" + closed("the last", closed_by_);
    case Access::kFenceOpen: return "a fence was called and nothing issued since (MPI_Win_fence)";
    case Access::kFenceActive: return "a fence epoch with operations is open (MPI_Win_fence)";
    case Access::kStarting: return "an epoch to " + counted(started_group_.size()) + " is waited for (MPI_Win_start)";
    case Access::kStarted: return "an epoch to " + counted(started_group_.size()) + " is open (MPI_Win_start)";
    case Access::kLocked:
      if (awaited_.empty()) return targets(held, "locked");
      return (held == 0 ? "" : targets(held, "locked") + ", ") + targets(awaited_.size(), "waited for");
    case Access::kLockingAll: return "all targets are waited for (MPI_Win_lock_all)";
    case Access::kLockedAll: return "all targets are locked (MPI_Win_lock_all)";
  }
  return "";
}

std::string ExposureSide::describe() const {
  const std::string origins = counted(group.size(), "origin") + " (MPI_Win_post)";
  switch (state) {
    case Exposure::kNone: return "the window is not exposed" + closed("the last exposure", closed_by);
    case Exposure::kFence: return "the window is exposed to all (MPI_Win_fence)";
    case Exposure::kPosting: return "the window is being posted to " + origins;
    case Exposure::kPosted: return "the window is posted to " + origins;
    case Exposure::kWaiting: return "the window is posted to " + origins + ", and its end is waited for (MPI_Win_wait)";
  }
  return "";
}

}  // namespace farside::epochs
