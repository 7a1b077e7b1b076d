// SPDX-License-Identifier: BSD-3-Clause
// The barrier of fence and free, over control words. The words count barriers and only grow, so a peer that is one
// barrier ahead can be told apart. Each word has one writer.
//
//   flat        dissemination: in round k rank r notifies rank r + 2^k and waits for the notification of rank r - 2^k;
//               ceil(log2(ranks)) rounds of one remote write each
//   by nodes    inside each node a binomial tree, whose root leads the node: its ranks report to the leader, the
//               leaders disseminate, and the leader releases its node. Between nodes ceil(log2(nodes)) writes per node,
//               inside a node two per rank, on mapped words
//
// The word also carries the assertions of the call, so that ranks detect calls that do not match, and failures:
//
//    63    36 35  16 15       8 7     0
//   |  count |  rank |  before  | flags |
//
//   count   barriers that the writer has entered, including this one; it wraps
//   rank    of kIncomplete, in this barrier or the last one that had it
//   flags   of this barrier (BarrierWord)
//   before  those of the preceding barrier, for a reader that is still in that one
//
// Each write is a notification, whose effect no rank awaits. In a window of two ranks it may also carry the writer's
// operations, because only the target itself accesses its memory before it has seen the write.
//
// The objects are not thread-safe, and no call waits. Memory: a schedule has 16 bytes per step, at most
// ceil(log2(ranks)) steps if it is flat, and 2 ceil(log2(ranks)) + 1 by nodes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "epochs/protocols/control_block.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

struct BarrierWord {
  static constexpr std::uint8_t kNoPrecede = 1;  // likewise the others: the assertion was given to MPI_Win_fence
  static constexpr std::uint8_t kNoSucceed = 2;
  static constexpr std::uint8_t kNoPut = 4;
  static constexpr std::uint8_t kFree = 8;         // the call is MPI_Win_free
  static constexpr std::uint8_t kFailed = 16;      // the writer could not notify some rank, or has received this flag
  static constexpr std::uint8_t kIncomplete = 32;  // operations of a rank have failed before the barrier

  static constexpr std::uint64_t make(std::uint64_t count, std::uint8_t flags, std::uint8_t before,
                                      std::uint64_t rank = 0) {
    return count << 36 | rank << 16 | static_cast<std::uint64_t>(before) << 8 | flags;
  }
  // Of the barrier behind that of `last`.
  static constexpr std::uint64_t next(std::uint64_t last, std::uint8_t flags) {
    return make(count(last) + 1, flags, current_flags(last), rank(last));
  }
  static constexpr std::uint64_t with_incomplete(std::uint64_t word, std::uint64_t rank) {
    return make(count(word), static_cast<std::uint8_t>(current_flags(word) | kIncomplete), preceding_flags(word), rank);
  }
  static constexpr std::uint64_t count(std::uint64_t word) { return word >> 36; }
  static constexpr std::uint64_t rank(std::uint64_t word) { return word >> 16 & 0xfffff; }
  // Whether the writer of `seen` has entered the barrier of `word`, from which it is less than half of all counts away.
  static constexpr bool entered(std::uint64_t seen, std::uint64_t word) {
    return static_cast<std::int64_t>(seen - make(count(word), 0, 0)) >= 0;
  }
  static constexpr std::uint8_t current_flags(std::uint64_t word) { return word & 0xff; }
  static constexpr std::uint8_t preceding_flags(std::uint64_t word) { return word >> 8 & 0xff; }
  // The flags of barrier `count`, given the word of a writer that is in that barrier or one ahead.
  static constexpr std::uint8_t flags(std::uint64_t word, std::uint64_t count) {
    return BarrierWord::count(word) == count ? current_flags(word) : preceding_flags(word);
  }
};

// The steps of one rank in each barrier of a window.
class BarrierSchedule {
 public:
  // First notifies `to` by its word `there`, then waits for `from` at the own word `here`.
  struct Step {
    std::int32_t to = -1;    // -1: no rank
    std::int32_t from = -1;  // -1: no rank
    std::uint32_t there = 0;
    std::uint32_t here = 0;
  };
  // Of a schedule by nodes: the most ranks of one node.
  static constexpr std::size_t kMostMembers = std::size_t{1} << ControlBlock::kBarrierLevels;

  static BarrierSchedule flat(int rank, int ranks) {
    BarrierSchedule schedule;
    schedule.flat_ = true;
    for (int k = 0; std::int64_t{1} << k < ranks; ++k) {
      const std::int64_t distance = std::int64_t{1} << k;
      const std::uint32_t word = ControlBlock::barrier_round(k);
      schedule.steps_.push_back({static_cast<int>((rank + distance) % ranks),
                                 static_cast<int>((rank + ranks - distance) % ranks), word, word});
    }
    return schedule;
  }
  // `members`: the ranks of this rank's node, at most kMostMembers; `index`: its place among them. The first member
  // leads. `leaders`: of all nodes, in the same order on all ranks; the other members do not use it.
  static BarrierSchedule by_nodes(std::span<const int> members, std::size_t index, std::span<const int> leaders) {
    BarrierSchedule schedule;
    // The parent of a member in the tree has its index without the lowest bit that is set.
    int below = 0;  // levels of the tree below this member
    while (index == 0 ? std::size_t{1} << below < members.size() : (index >> below & 1) == 0) ++below;
    const auto child = [&](int level) { return index + (std::size_t{1} << level); };
    for (int level = 0; level < below && child(level) < members.size(); ++level)
      schedule.steps_.push_back({.from = members[child(level)], .here = ControlBlock::barrier_arrival(level)});
    if (index == 0) {
      const auto place = std::ranges::find(leaders, members[0]) - leaders.begin();
      const BarrierSchedule rounds = flat(static_cast<int>(place), static_cast<int>(leaders.size()));
      for (const Step& round : rounds.steps_) {
        schedule.steps_.push_back({leaders[static_cast<std::size_t>(round.to)],
                                   leaders[static_cast<std::size_t>(round.from)], round.there, round.here});
      }
    } else {
      const int parent = members[index & (index - 1)];
      schedule.steps_.push_back({parent, parent, ControlBlock::barrier_arrival(below), ControlBlock::kBarrierRelease});
    }
    // The largest part of the tree first.
    for (int level = below - 1; level >= 0; --level) {
      if (child(level) < members.size())
        schedule.steps_.push_back({.to = members[child(level)], .there = ControlBlock::kBarrierRelease});
    }
    return schedule;
  }

  std::span<const Step> steps() const { return steps_; }
  // Of a flat schedule: the rank that `rank` notifies first. Its word of round 0 shows whether `rank` has entered.
  static int first_notified(int rank, int ranks) { return (rank + 1) % ranks; }
  bool is_flat() const { return flat_; }

 private:
  std::vector<Step> steps_;
  bool flat_ = false;
};

// One barrier of one rank. Errors: a failed write ends the barrier, and so does abandon(). Before the barrier ends, the
// rank sends BarrierWord::kFailed to all ranks that wait for it in later steps, and waits for no other rank. The
// barrier of these ranks ends without a failed write; they see the flag and pass it on.
template <NotifyingMemory M>
class Barrier {
  using Step = BarrierSchedule::Step;

 public:
  static constexpr std::size_t kMostSteps = ControlBlock::kBarrierRounds + 2 * ControlBlock::kBarrierLevels;

  // `schedule` outlives the barrier. `word`: of BarrierWord, with the number of barriers that this rank has entered in
  // this window, including this one. Peers may have the word already: writing it again changes nothing.
  // `interruptions`: the number of interruptions that the memory had counted when this rank entered the preceding
  // barrier. A peer writes its word of this barrier after that time, because it first leaves the preceding barrier.
  Barrier(M& memory, const BarrierSchedule& schedule, std::uint64_t word, std::uint32_t interruptions)
      : memory_(memory),
        schedule_(schedule),
        word_(word),
        last_(schedule.steps().size()),
        interruptions_(interruptions) {}

  bool advance() {
    if (!failed_) {
      if (pass()) return true;
      failed_ = find_failed() != nullptr;
    }
    if (failed_) notify_of_failure();
    return false;
  }

  // After the barrier: the own word, with the failures that were passed on; the steps, and the flags that the rank
  // `from` of each has sent.
  std::uint64_t word() const { return word_; }
  std::span<const Step> steps() const { return schedule_.steps(); }
  std::uint8_t received_flags(std::size_t step) const { return received_flags_[step]; }
  // The rank whose word this one waits for, if that word may be lost (NotifyingMemory::interrupted_since), else -1. The
  // word may also be late, so the caller decides when to abandon the barrier.
  int awaits_lost() const {
    if (failed_ || at_ == steps().size() || (steps()[at_].to >= 0 && !notified_)) return -1;
    const Step& step = steps()[at_];
    if (step.from < 0 || !memory_.interrupted_since(step.from, interruptions_)) return -1;
    // An arrival before the interruption counts.
    return BarrierWord::entered(memory_.own(step.here), word_) ? -1 : step.from;
  }
  // The rank whose word this one waits for, or -1 while it waits for nothing but its own writes.
  int awaits() const { return failed_ || at_ == steps().size() ? -1 : steps()[at_].from; }
  void abandon() { failed_ = abandoned_ = true; }
  // How the barrier has failed, after the other ranks were notified: failed_operation() returns the failed write, if
  // there is one, and abandoned() whether abandon() ended the barrier.
  typename M::Operation* failed_operation() { return failed_ && notified_of_failure_ ? find_failed() : nullptr; }
  bool abandoned() const { return abandoned_ && notified_of_failure_; }

 private:
  typename M::Operation* find_failed() {
    for (typename M::Operation& operation : operations_) {
      if (operation.failed()) return &operation;
    }
    return nullptr;
  }
  // Executes all steps that the words of the peers allow. A write may fail only because its receiver has left the
  // barrier and its process has ended, so the words that have arrived are evaluated before failed writes.
  bool pass() {
    const std::span<const Step> steps = schedule_.steps();
    for (; at_ < steps.size(); ++at_, notified_ = false) {
      const Step& step = steps[at_];
      if (step.to >= 0 && !notified_) {
        // Two operations take turns, so that sending overlaps with the next step.
        typename M::Operation& operation = operations_[writes_ % 2];
        if (!operation.done() || find_failed() != nullptr) return false;
        memory_.notify_write(operation, step.to, step.there, word_, DataAccess::kEnds);
        ++writes_;
        notified_ = true;
      }
      if (step.from < 0) continue;
      const std::uint64_t seen = memory_.own(step.here);
      if (!BarrierWord::entered(seen, word_)) return false;
      const std::uint8_t flags = received_flags_[at_] = BarrierWord::flags(seen, BarrierWord::count(word_));
      if ((flags & BarrierWord::kFailed) != 0) word_ |= BarrierWord::kFailed;
      if ((flags & ~BarrierWord::current_flags(word_) & BarrierWord::kIncomplete) != 0)
        word_ = BarrierWord::with_incomplete(word_, BarrierWord::rank(seen));
    }
    return operations_[0].done() && operations_[1].done();
  }

  // Writes to all ranks that wait for this rank in later steps, and waits only for its own writes. The last steps come
  // first: they release ranks of the node, and a write to another node may take long to fail.
  void notify_of_failure() {
    for (const std::size_t first = at_ + (notified_ ? 1 : 0); last_ > first; --last_) {
      const Step& step = steps()[last_ - 1];
      if (step.to < 0) continue;
      if (!late_write_over()) return;
      memory_.notify_write(late_write_, step.to, step.there, word_ | BarrierWord::kFailed, DataAccess::kEnds);
    }
    notified_of_failure_ = late_write_over();
  }
  // Drops the error of the write, because the barrier has failed already.
  bool late_write_over() {
    if (late_write_.failed()) (void)late_write_.take_error();
    return late_write_.done();
  }

  M& memory_;
  const BarrierSchedule& schedule_;
  std::array<typename M::Operation, 2> operations_;
  typename M::Operation late_write_;  // after a failure
  std::uint64_t word_;
  std::size_t at_ = 0;
  std::size_t writes_ = 0;
  std::size_t last_;  // after a failure: the steps from here on are over
  std::uint32_t interruptions_;
  std::array<std::uint8_t, kMostSteps> received_flags_{};
  bool notified_ = false;
  bool failed_ = false;
  bool abandoned_ = false;
  bool notified_of_failure_ = false;
};

}  // namespace farside::epochs
