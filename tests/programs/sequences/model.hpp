// SPDX-License-Identifier: BSD-3-Clause
// The plain model of sequences: the state of each rank, the calls, and the rules of the standard for each. It follows
// the text of MPI 4.0 chapter 12 and shares no code with epochs/.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"

namespace sequences {

// The error classes that the standard allows for a call. An empty set: the call must succeed.
using Classes = std::set<int>;

struct Process {
  // Access side. A fence epoch may begin after a fence, until another synchronization on this side (12.5.1).
  bool fenced = false;
  int issued = 0;  // operations since the fence
  std::optional<std::set<int>> started;
  std::map<int, int> locks;  // target to lock type
  bool all = false;
  // Exposure side.
  std::optional<std::set<int>> posted;
  bool posted_no_put = false;
  bool empty_start = false, empty_post = false;  // with an empty group; not yet completed, not yet waited for
  std::set<int> completed;                       // members of the posted group
  bool fenced_no_put = false;
  // The ranks that have posted to this process and to which it has not started yet.
  std::set<int> waiting_posts;

  bool passive() const { return all || !locks.empty(); }
  bool passive_to(int target) const { return all || locks.count(target) != 0; }
  bool fence_epoch() const { return fenced && issued > 0; }
  bool access_epoch() const { return passive() || started || fence_epoch(); }
};

struct Model {
  explicit Model(int ranks) : processes(static_cast<std::size_t>(ranks)) {}
  std::vector<Process> processes;
  Process& of(int rank) { return processes[static_cast<std::size_t>(rank)]; }
  int ranks() const { return static_cast<int>(processes.size()); }
  bool is_rank(int rank) const { return rank >= 0 && rank < ranks(); }

  // Whether the memory of this process is exposed by a post, or locked by MPI_Win_lock (12.5.3). MPI_Win_lock_all is
  // not refused because of exposures of other ranks, nor a post because of their MPI_Win_lock_all.
  bool exposed(int rank) { return of(rank).posted.has_value(); }
  bool locked(int rank) {
    for (const Process& each : processes)
      if (each.locks.count(rank) != 0) return true;
    return false;
  }
  // Whether this process can acquire such a lock without waiting.
  bool lock_is_free(int by, int target, int type) {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == by || !of(rank).passive_to(target)) continue;
      if (type == MPI_LOCK_EXCLUSIVE || (!of(rank).all && of(rank).locks.at(target) == MPI_LOCK_EXCLUSIVE))
        return false;
    }
    return true;
  }
};

// ---- the calls

enum class Kind {
  kPut,
  kGet,
  kAccumulate,
  kFetchAndOp,
  kRput,
  kRget,  // operations first
  kFlush,
  kFlushAll,
  kFlushLocal,
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
constexpr int kKinds = static_cast<int>(Kind::kFree) + 1;

// A wrong argument, independent of the epoch.
enum class Flaw { kNone, kCount, kType, kDisplacement, kRange, kOp, kAssert, kLockType, kGroup };

struct Step {
  int actor = 0;  // kEverybody: collective
  Kind kind = Kind::kSync;
  int target = 0;
  int lock_type = MPI_LOCK_SHARED;
  int assert = 0;
  std::set<int> group;
  Flaw flaw = Flaw::kNone;

  static constexpr int kEverybody = -1;
  bool is_operation() const { return kind <= Kind::kRget; }
  bool is_request() const { return kind == Kind::kRput || kind == Kind::kRget; }
  bool updates() const { return kind != Kind::kGet && kind != Kind::kRget; }
  bool has_target() const {
    return is_operation() || kind == Kind::kFlush || kind == Kind::kFlushLocal || kind == Kind::kLock ||
           kind == Kind::kUnlock;
  }
  std::string text() const;
};

// ---- the rules

// Returns the errors of this rank's call in the current state of all ranks.
Classes expected_errors(Model& model, const Step& step, int rank);

// Whether a legal call of this rank ends without a further call of another rank. The state after it must have a legal
// continuation, too: a rank to which another has posted must be able to start.
bool can_end(Model& model, const Step& step, int rank);

// Updates the model after a legal call of this rank.
void update_model(Model& model, const Step& step, int rank);

}  // namespace sequences
