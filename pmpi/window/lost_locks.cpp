// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "pmpi/window/wait_reports.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

using epochs::ControlBlock, epochs::LockType, epochs::LockWord, epochs::NearNext, epochs::kGlobalLock,
    epochs::kTargetLock;

std::optional<Error> LostLocks::find(const epochs::AwaitedLock& lock, Look& look) {
  const bool global = lock.word == kGlobalLock.word();
  WaitReports reports(window_);
  std::vector<WaitReports::WordOf> words{{lock.rank, lock.word}};
  if (global) {
    for (const LockType type : {LockType::kShared, LockType::kExclusive})
      words.push_back({lock.rank, kGlobalLock.drain_word(type)});
  } else {
    words.push_back({lock.rank, kTargetLock.drain_word(LockType::kShared)});
  }
  auto now = reports.read_words(words);
  // Arrivals do not count.
  if (now.front())
    now.front() = LockWord::ticket(*now.front()) - LockWord::readers(*now.front()) - LockWord::writers(*now.front());
  const std::vector<Dead> dead = look_for_dead(lock.rank);
  const bool moved = std::exchange(look.seen, now) != now;
  if (dead.empty() || moved || (lock.near && !is_behind(dead))) return {};
  for (const int holder : reports.exclusive_holders(global ? -1 : lock.rank)) {
    if (std::ranges::find(dead, holder, &Dead::rank) == dead.end()) return {};
  }
  std::string ended;
  for (const Dead& each : dead) ended += fmt::format("{}rank {}{}", ended.empty() ? "" : ", ", each.rank, each.how);
  return Error{ErrorKind::kPeer,
               fmt::format("{} is lost: {} ended, and nobody has released the lock since; free the window",
                           global ? "the global lock" : fmt::format("the lock of rank {}", lock.rank), ended)};
}

Status LostLocks::declare(const epochs::AwaitedLock& lock, LockType type, const Error& why) {
  bool dispensable = false;
  if (lock.word == kGlobalLock.word() && type == LockType::kExclusive) {
    epochs::LoseGlobalLock<ControlMemory> lose(window_.control, lock.rank);
    if (Status tried = run(window_.space->words().wake_event(), lose); !tried) return tried;
    dispensable = lose.lost();
  }
  const auto held = window_.guard();
  lost_.push_back({lock, type, why});
  if (dispensable) window_.locks.lose_global_lock();
  return dispensable ? Status() : why;
}

Status LostLocks::check(int rank, LockType type) {
  const auto held = window_.guard();
  const bool all = rank < 0;
  for (const auto& [lock, by, why] : lost_) {
    // An exclusive lock may be possible where a lock_all is not (rule 9 of lock_table.hpp).
    const bool needed = lock.word == kGlobalLock.word()
                            ? all || (by == type && window_.locks.needs_global_lock(type))
                            : lock.rank == rank || (all && !window_.locks.has_global_lock());
    if (needed) return why;
  }
  return {};
}

bool LostLocks::is_behind(const std::vector<Dead>& ahead) const {
  const Space& space = *window_.space;
  return std::ranges::any_of(ahead, [&](const Dead& each) {
    int rank = each.rank;
    for (int steps = 0; steps < space.ranks(); ++steps) {
      const ControlWords::Mapped block = space.words().on_node(rank);
      const std::uint64_t next = block ? ControlWord::look(block.word(ControlBlock::kNearNext)) : 0;
      if (next == 0 || next == NearNext::kGone) return false;
      rank = NearNext::rank(next);
      if (rank == space.rank()) return true;
    }
    return false;
  });
}

std::vector<LostLocks::Dead> LostLocks::look_for_dead(int awaited) {
  const std::scoped_lock held(mutex_);
  const int all = window_.space->ranks();
  std::vector<Dead> dead;
  for (int rank = 0; rank < all; ++rank) {
    if (!window_.control.mapped(rank)) continue;
    const ProcessIdentity process = window_.space->words().process_of(rank);
    if (process.is_dead()) dead.push_back({rank, fmt::format(" (process {})", process.pid())});
  }
  reads_.remove_if([](const Read& read) { return read.operation.done(); });
  std::set<int> ranks{awaited};
  ranks.insert(suspects_.begin(), suspects_.end());
  for (int i = 0; i < all && ranks.size() < kMostReads; ++i) {
    ranks.insert(next_);
    next_ = (next_ + 1) % all;
  }
  for (const int rank : ranks) {
    if (!window_.control.mapped(rank)) look_over_fabric(rank, dead);
  }
  return dead;
}

void LostLocks::look_over_fabric(int rank, std::vector<Dead>& dead) {
  FabricControl* const route = window_.control.route();
  if (route == nullptr) return;
  const auto read = std::ranges::find(reads_, rank, &Read::rank);
  const bool reads = read != reads_.end(), failed = reads && read->operation.failed();
  const Result<bool> reached = route->reach(rank);
  const std::string why = failed ? read->operation.take_error().error().text : reached ? "" : reached.error().text;
  if (failed) reads_.erase(read);
  const bool suspected = suspects_.erase(rank) != 0;
  if (!why.empty()) {
    if (failed || suspected) dead.push_back({rank, fmt::format(" ({})", why)});
    suspects_.insert(rank);
  } else if (!reads && route->may_read(rank)) {
    window_.control.read(reads_.emplace_back(rank).operation, rank, ControlBlock::kLock);
  }
}

}  // namespace farside::pmpi
