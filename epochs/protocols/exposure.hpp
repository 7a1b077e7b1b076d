// SPDX-License-Identifier: BSD-3-Clause
// Post, start, complete and wait by remote atomics on control words (MPI 4.0 section 12.5.2).
//
//   post      adds the bit of this rank to `posted` at every origin of the group, and with MPI_MODE_NOPUT the next bit
//   start     waits until the bits of all its targets are set in its own `posted`, and clears them
//   complete  adds 1 to `completed` at every target, after the operations of the epoch have completed there, and behind
//             a write of its rank to `incomplete` if some have failed
//   wait      waits until its own `completed` has grown by the size of the group, and reads `incomplete`
//
// One bit per peer is enough: a target posts to the same origin again only after its wait, which follows the origin's
// complete, which follows the start that cleared the bit. One counter is enough: an origin completes again towards the
// same target only after the target's next post, which follows its wait.
//
// Post and complete are notifications, whose effect the sender does not await. A complete takes effect behind the
// operations that the memory keeps for its target.
//
// The objects are not thread-safe, and none of their calls waits. Cost: one notification per member of the group for
// post and complete; start and wait read own words only. Memory: two bits per peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// Notifies every member of a group, all at once: post and complete.
template <NotifyingMemory M>
class Notify {
 public:
  enum class What : std::uint8_t { kPosted, kPostedNoPut, kCompleted };
  Notify(M& memory, int rank, What what, std::span<const int> group) : operations_(group.size()) {
    const Notification notification = notification_of(rank, what);
    for (std::size_t i = 0; i < group.size(); ++i) {
      memory.notify_add(operations_[i], group[i], notification.word, notification.added, notification.access);
    }
  }
  // The addend and its word, for a caller that has the member's word mapped and needs no operation.
  struct Notification {
    std::uint32_t word;
    std::uint64_t added;
    DataAccess access;  // a complete ends the access of its epoch
  };
  static constexpr Notification notification_of(int rank, What what) {
    if (what == What::kCompleted) return {ControlBlock::kCompleted, 1, DataAccess::kEnds};
    const std::uint64_t no_put = what == What::kPostedNoPut ? ControlBlock::no_put_bit(rank) : 0;
    return {ControlBlock::posted_word(rank), ControlBlock::posted_bit(rank) + no_put, DataAccess::kGoesOn};
  }
  bool advance() {
    for (; done_ < operations_.size(); ++done_) {
      if (!operations_[done_].done()) return false;
    }
    return true;
  }
  // The first failed operation of those not yet known to be done, or null.
  typename M::Operation* failed_operation() {
    return done_ < operations_.size() && operations_[done_].failed() ? &operations_[done_] : nullptr;
  }

 private:
  std::deque<typename M::Operation> operations_;
  std::size_t done_ = 0;
};

// Waits for the posts of all targets of a start. `targets` must outlive the object.
template <RemoteMemory M>
class AwaitPosts {
 public:
  // `no_put`, if given, receives the targets that asserted MPI_MODE_NOPUT.
  AwaitPosts(M& memory, std::span<const int> targets, std::vector<int>* no_put = nullptr)
      : memory_(memory), targets_(targets), no_put_(no_put) {}
  bool advance() {
    for (; seen_ < targets_.size(); ++seen_) {
      if (posted_by(targets_[seen_]) == 0) return false;
    }
    // The bits are cleared only when all posts have arrived, because a start that fails leaves the posts to a later
    // start.
    for (; taken_ < targets_.size(); ++taken_) {
      const int target = targets_[taken_];
      const std::uint64_t posted = posted_by(target);
      if ((posted & ControlBlock::no_put_bit(target)) != 0 && no_put_ != nullptr) no_put_->push_back(target);
      memory_.own_fetch_add(ControlBlock::posted_word(target), -posted);
    }
    return true;
  }
  // The targets whose posts have not arrived.
  std::vector<int> missing() const {
    std::vector<int> missing;
    for (const int target : targets_.subspan(seen_)) {
      if (posted_by(target) == 0) missing.push_back(target);
    }
    return missing;
  }
  // Returns the first target whose post has not arrived and for which lost(target) is true, or -1. Precondition:
  // advance() has returned false. What has arrived when lost() is called is visible.
  template <class Lost>
  int first_missing(Lost&& lost) const {
    for (const int target : targets_.subspan(seen_)) {
      if (lost(target) && posted_by(target) == 0) return target;
    }
    return -1;
  }

 private:
  // The bits of its post, which sets both in one step.
  std::uint64_t posted_by(int target) const {
    const std::uint64_t bits = ControlBlock::posted_bit(target) | ControlBlock::no_put_bit(target);
    return memory_.own(ControlBlock::posted_word(target)) & bits;
  }

  M& memory_;
  std::span<const int> targets_;
  std::vector<int>* no_put_;
  std::size_t seen_ = 0, taken_ = 0;
};

// The exposure mark in this rank's own lock word. A lock detects a posted window by this mark, and a post detects a
// locked window by the counts in the same word. A lock_all of another rank does not count as a lock of this rank,
// because only its operations can break the rules: whether it coincides with an exposure to third ranks is chance.
template <RemoteMemory M>
class ExposureMark {
 public:
  // Returns false, and changes nothing, if an MPI_Win_lock of this rank is held or awaited.
  static bool set(M& memory) {
    const std::uint64_t before = memory.own_fetch_add(ControlBlock::kLock, LockWord::kExposed);
    if (!LockWord::locked(before)) return true;
    clear(memory);
    return false;
  }
  // The same beside such locks, which hold no less for it.
  static void set_beside_locks(M& memory) { memory.own_fetch_add(ControlBlock::kLock, LockWord::kExposed); }
  static void clear(M& memory) { memory.own_fetch_add(ControlBlock::kLock, -LockWord::kExposed); }
};

// Reads whether a rank is exposed now: one remote read.
template <RemoteMemory M>
class ReadExposure {
 public:
  ReadExposure(M& memory, int target) { memory.read(operation_, target, ControlBlock::kLock); }
  bool advance() const { return operation_.done(); }
  bool exposed() const { return LockWord::exposed(operation_.value()); }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  typename M::Operation operation_;
};

// The completes that the exposure side of one rank has waited for.
class CompletionCount {
 public:
  // Returns true, and counts the epochs as waited for, once `members` further access epochs have completed.
  template <RemoteMemory M>
  bool take(const M& memory, std::size_t members) {
    if (missing(memory, members) != 0) return false;
    waited_for_ += members;
    return true;
  }
  // How many of these have not completed.
  template <RemoteMemory M>
  std::size_t missing(const M& memory, std::size_t members) const {
    const auto missing = static_cast<std::int64_t>(waited_for_ + members - memory.own(ControlBlock::kCompleted));
    return missing > 0 ? static_cast<std::size_t>(missing) : 0;
  }
  // Records that an exposure has ended without all its completes. The missing ones may still arrive, and could not be
  // distinguished from completes of a later exposure. So there must be no later exposure.
  void abandon() { abandoned_ = 1; }
  bool abandoned() const { return abandoned_ != 0; }

 private:
  std::uint64_t waited_for_ = 0;
  std::uint64_t abandoned_ = 0;  // a whole word: the explorer hashes programs by their bytes, so there is no padding
};

}  // namespace farside::epochs
