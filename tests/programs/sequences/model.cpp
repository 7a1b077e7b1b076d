// SPDX-License-Identifier: BSD-3-Clause
#include "sequences/model.hpp"

#include <algorithm>

namespace sequences {
namespace {

constexpr const char* kNames[kKinds] = {
    "MPI_Put",       "MPI_Get",       "MPI_Accumulate",    "MPI_Fetch_and_op",    "MPI_Rput",
    "MPI_Rget",      "MPI_Win_flush", "MPI_Win_flush_all", "MPI_Win_flush_local", "MPI_Win_sync",
    "MPI_Win_fence", "MPI_Win_post",  "MPI_Win_start",     "MPI_Win_complete",    "MPI_Win_wait",
    "MPI_Win_test",  "MPI_Win_lock",  "MPI_Win_unlock",    "MPI_Win_lock_all",    "MPI_Win_unlock_all",
    "MPI_Win_free",
};

}  // namespace

std::string Step::text() const {
  std::string out = actor == kEverybody ? "all: " : "rank " + std::to_string(actor) + ": ";
  out += kNames[static_cast<int>(kind)];
  if (has_target()) out += " target " + std::to_string(target);
  if (kind == Kind::kLock) out += lock_type == MPI_LOCK_SHARED ? " shared" : " exclusive";
  if (kind == Kind::kPost || kind == Kind::kStart) {
    out += " {";
    for (int rank : group) out += " " + std::to_string(rank);
    out += " }";
  }
  if (assert != 0) out += " assert " + std::to_string(assert);
  if (flaw != Flaw::kNone) out += " flaw " + std::to_string(static_cast<int>(flaw));
  return out;
}

Classes expected_errors(Model& model, const Step& step, int rank) {
  Classes wrong;
  Process& me = model.of(rank);
  const bool to_nobody = step.has_target() && step.target == MPI_PROC_NULL;
  switch (step.flaw) {
    case Flaw::kNone: break;
    case Flaw::kCount: wrong.insert(MPI_ERR_COUNT); break;
    case Flaw::kType: wrong.insert(MPI_ERR_TYPE); break;
    case Flaw::kDisplacement: wrong.insert(MPI_ERR_DISP); break;
    case Flaw::kRange: wrong.insert(MPI_ERR_RMA_RANGE); break;
    case Flaw::kOp: wrong.insert(MPI_ERR_OP); break;
    case Flaw::kAssert: wrong.insert(MPI_ERR_ASSERT); break;
    case Flaw::kLockType: wrong.insert(MPI_ERR_LOCKTYPE); break;
    case Flaw::kGroup: wrong.insert(MPI_ERR_GROUP); break;
  }
  if (to_nobody) return wrong;  // 12.3: a call to MPI_PROC_NULL does nothing, anywhere
  if (step.has_target() && !model.is_rank(step.target)) {
    wrong.insert(MPI_ERR_RANK);
    return wrong;
  }
  const auto needs = [&](bool condition, int error_class = MPI_ERR_RMA_SYNC) {
    if (!condition) wrong.insert(error_class);
  };
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp: {
      const bool in_start = me.started && me.started->count(step.target) != 0;
      const bool in_fence = me.fenced && !me.started && !me.passive();
      needs(me.passive_to(step.target) || in_start || in_fence);
      if (step.updates() && in_start) needs(!model.of(step.target).posted_no_put);
      if (step.updates() && in_fence) needs(!model.of(step.target).fenced_no_put);
      break;
    }
    case Kind::kRput:
    case Kind::kRget:
    case Kind::kFlush:
    case Kind::kFlushLocal: needs(me.passive_to(step.target)); break;
    case Kind::kFlushAll: needs(me.passive()); break;
    case Kind::kSync: break;
    case Kind::kFence:
      needs(!me.started && !me.passive() && !me.posted);
      if ((step.assert& MPI_MODE_NOPRECEDE) != 0) needs(!me.fence_epoch(), MPI_ERR_ASSERT);
      break;
    case Kind::kPost:
      if (step.group.empty()) break;  // 12.5.2: "a noop"
      needs(!me.posted && !me.all);
      needs(!model.locked(rank), MPI_ERR_RMA_CONFLICT);
      break;
    case Kind::kStart: needs(step.group.empty() || !me.access_epoch()); break;
    case Kind::kComplete: needs(me.started || me.empty_start); break;
    case Kind::kWait:
    case Kind::kTest: needs(me.posted || me.empty_post); break;
    case Kind::kLock:
      needs(!me.started && !me.all && !me.fence_epoch() && me.locks.count(step.target) == 0);
      needs(!model.exposed(step.target), MPI_ERR_RMA_CONFLICT);
      break;
    case Kind::kUnlock: needs(me.locks.count(step.target) != 0); break;
    case Kind::kLockAll: needs(!me.access_epoch() && !me.posted); break;
    case Kind::kUnlockAll: needs(me.all); break;
    case Kind::kFree: needs(!me.access_epoch() && !me.posted); break;
  }
  return wrong;
}

bool can_end(Model& model, const Step& step, int rank) {
  Process& me = model.of(rank);
  if (step.has_target() && step.target == MPI_PROC_NULL) return true;
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp:
      // If a fence epoch begins now, this rank can start only after a fence of all ranks.
      return me.started || me.passive() || me.waiting_posts.empty();
    case Kind::kPost:
      for (int origin : step.group)
        if (model.of(origin).fence_epoch()) return false;
      return true;
    case Kind::kStart:
      return std::includes(me.waiting_posts.begin(), me.waiting_posts.end(), step.group.begin(), step.group.end());
    case Kind::kWait: return !me.posted || me.completed == *me.posted;
    case Kind::kLock: return model.lock_is_free(rank, step.target, step.lock_type);
    case Kind::kLockAll:
      for (int each = 0; each < model.ranks(); ++each)
        if (!model.lock_is_free(rank, each, MPI_LOCK_SHARED)) return false;
      return true;
    case Kind::kFence:
    case Kind::kFree: return step.actor == Step::kEverybody;
    default: return true;
  }
}

void update_model(Model& model, const Step& step, int rank) {
  Process& me = model.of(rank);
  if (step.has_target() && step.target == MPI_PROC_NULL) return;
  const auto exposure_ends = [&] {
    me.posted.reset();
    me.posted_no_put = false;
    me.completed.clear();
  };
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp:
      if (!me.started && !me.passive()) ++me.issued;
      break;
    case Kind::kFence:
      me.fenced = (step.assert& MPI_MODE_NOSUCCEED) == 0;
      me.fenced_no_put = (step.assert& MPI_MODE_NOPUT) != 0;
      me.issued = 0;
      break;
    case Kind::kPost:
      if (step.group.empty()) {
        me.empty_post = true;
        break;
      }
      me.posted = step.group;
      me.posted_no_put = (step.assert& MPI_MODE_NOPUT) != 0;
      for (int origin : step.group) model.of(origin).waiting_posts.insert(rank);
      break;
    case Kind::kStart:
      if (step.group.empty()) {
        me.empty_start = true;
        break;
      }
      me.started = step.group;
      me.fenced = false;
      for (int target : step.group) me.waiting_posts.erase(target);
      break;
    case Kind::kComplete:
      if (!me.started) {
        me.empty_start = false;
        break;
      }
      for (int target : *me.started) model.of(target).completed.insert(rank);
      me.started.reset();
      break;
    case Kind::kWait:
    case Kind::kTest:
      if (!me.posted) {
        me.empty_post = false;
      } else if (me.completed == *me.posted) {
        exposure_ends();
      }
      break;
    case Kind::kLock:
      me.locks[step.target] = step.lock_type;
      me.fenced = false;
      break;
    case Kind::kUnlock: me.locks.erase(step.target); break;
    case Kind::kLockAll:
      me.all = true;
      me.fenced = false;
      break;
    case Kind::kUnlockAll: me.all = false; break;
    default: break;
  }
}

}  // namespace sequences
