// SPDX-License-Identifier: BSD-3-Clause
// The near lock: by it an exclusive lock of a rank on another node passes from rank to rank of one node, through the
// memory of the node, up to a number of times in a row, as a lock cohort (Dice, Marathe, Shavit, PPoPP 2012). Locks of
// ranks of the same node never use it. It is a queue of the ranks of the node that want this lock (Mellor-Crummey and
// Scott, TOCS 1991), and keeps their order.
//
//   near         at one rank of the node, which the target selects: the target for which the near lock is in use, and
//                the last rank of the queue. A rank that finds it in use for another target goes to the target's lock
//                directly, so locks of different targets never wait for each other
//   near_next    at a rank of the queue: the next one
//   near_wake    likewise: 0 while it waits, then a NearWake
//   near_token   likewise: the token of the global lock, if near_wake says that the lock is held
//
// The first rank of the queue leads: it acquires the target's lock and the global lock as if there were no near lock.
// Its unlock hands both to the next rank, or releases them and tells the next rank to lead. So each place in the queues
// of these locks stands for at most 1 + `most` acquisitions (NearPlace).
//
// No release waits: if the next rank has entered `near` but not yet near_next, the leaving rank marks near_next (kGone)
// and the next rank, which finds the mark, leads and removes it. Until then the leaving rank uses no near lock.
//
// N: a RemoteMemory of the words of the node (M::Near), whose operations do not fail. Thread safety: rule 8 of
// lock_table.hpp. Cost: no remote operation; uncontended two atomics. Memory: 32 bytes per rank.
#pragma once

#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"

namespace farside::epochs {

// The near lock of a target.
struct NearPlace {
  static constexpr std::uint32_t kMost = 254;  // HeldLock::near
  int home = -1;                               // the rank that has the word `near`; -1: none
  std::uint32_t most = 0;                      // hand-offs in a row; 0: none is used
};

//    63           32 31           0
//   |  target + 1   |  last + 1   |     0: not in use
struct NearWord {
  static constexpr std::uint64_t make(int target, int last) { return one_more(target) << 32 | one_more(last); }
  static constexpr int target(std::uint64_t word) { return static_cast<int>(word >> 32) - 1; }
  static constexpr int last(std::uint64_t word) { return static_cast<int>(word % (1ULL << 32)) - 1; }

 private:
  static constexpr std::uint64_t one_more(int rank) { return static_cast<std::uint64_t>(rank) + 1; }
};

// near_next: 0, a rank + 1, or kGone.
struct NearNext {
  static constexpr std::uint64_t kGone = ~std::uint64_t{0};
  static constexpr std::uint64_t make(int rank) { return static_cast<std::uint64_t>(rank) + 1; }
  static constexpr int rank(std::uint64_t word) { return static_cast<int>(word) - 1; }
};

//    63      15 14        1   0
//   |  token   | hand-offs | 1 |        both locks are held, after so many hand-offs in a row
//   |  0                   | 0 | 1 << 1: the rank leads
struct NearWake {
  static constexpr std::uint64_t kLead = 2;
  static constexpr std::uint64_t hold(LockToken token, std::uint64_t hand_offs) {
    return token.bits() << kTokenShift | hand_offs << 1 | 1;
  }
  static constexpr bool holds(std::uint64_t word) { return word % 2 == 1; }
  static constexpr LockToken token(std::uint64_t word) { return LockToken::of(word >> kTokenShift); }
  static constexpr std::uint64_t hand_offs(std::uint64_t word) { return word % (1ULL << kTokenShift) / 2; }

 private:
  static constexpr unsigned kTokenShift = 64 - LockToken::kBits;
};
static_assert(NearPlace::kMost < 1U << (63 - LockToken::kBits));

// Enters the queue, and waits until the rank leads or holds.
template <class N>
class AcquireNear {
 public:
  AcquireNear(N& memory, int self, int target, int home) : memory_(memory), self_(self), target_(target), home_(home) {}

  bool advance() {
    while (operation_.done()) {
      switch (step_) {
        case Step::kEnter:
          memory_.compare_and_swap(operation_, home_, ControlBlock::kNear, before_, NearWord::make(target_, self_));
          step_ = Step::kEntered;
          break;
        case Step::kEntered: {
          const std::uint64_t found = operation_.value();
          if (found == before_) {
            entered();
          } else if (found == 0 || NearWord::target(found) == target_) {
            before_ = found;
            step_ = Step::kEnter;
          } else {
            step_ = Step::kDirect;
          }
          break;
        }
        case Step::kLinked:
          step_ = Step::kAsleep;
          if (operation_.value() == 0) break;
          memory_.write_unawaited(NearWord::last(before_), ControlBlock::kNearNext, 0);
          step_ = Step::kLeads;
          break;
        case Step::kAsleep: {
          const std::uint64_t wake = memory_.own(ControlBlock::kNearWake);
          if (wake == 0) return false;
          memory_.own_fetch_add(ControlBlock::kNearWake, -wake);
          if (NearWake::holds(wake)) {
            wake_ = wake;
            global_ = memory_.own(ControlBlock::kNearToken);
            memory_.own_fetch_add(ControlBlock::kNearToken, -global_);
          }
          step_ = Step::kLeads;
          break;
        }
        case Step::kLeads:
        case Step::kDirect: return true;
      }
    }
    return false;
  }

  // The result. HeldLock::near: 0 if the near lock is in use for another target, 1 if the rank leads; else the rank
  // holds the lock and the global lock.
  std::uint8_t near() const {
    return step_ == Step::kDirect ? 0 : static_cast<std::uint8_t>(1 + NearWake::hand_offs(wake_));
  }
  bool holds() const { return wake_ != 0; }
  LockToken token() const { return NearWake::token(wake_); }
  LockToken global_lock_token() const { return LockToken::of(global_); }

 private:
  enum class Step : std::uint8_t { kEnter, kEntered, kLinked, kAsleep, kLeads, kDirect };

  void entered() {
    step_ = Step::kLeads;
    if (before_ == 0) return;
    memory_.compare_and_swap(operation_, NearWord::last(before_), ControlBlock::kNearNext, 0, NearNext::make(self_));
    step_ = Step::kLinked;
  }

  N& memory_;
  typename N::Operation operation_;
  std::uint64_t before_ = 0;  // in the word `near`, before this rank
  std::uint64_t wake_ = 0;    // if it holds
  std::uint64_t global_ = 0;
  int self_;
  int target_;
  int home_;
  Step step_ = Step::kEnter;
};

// Leaves the near lock after the target's lock was released, or not acquired: the next rank leads.
template <class N>
class LeaveNear {
 public:
  LeaveNear(N& memory, int self, int target, int home) : memory_(memory), self_(self), target_(target), home_(home) {}

  bool advance() {
    while (step_ != Step::kDone && operation_.done()) {
      switch (step_) {
        case Step::kBegin:
          if (const std::uint64_t next = memory_.own(ControlBlock::kNearNext); next != 0) {
            lead(next);
            break;
          }
          memory_.compare_and_swap(operation_, home_, ControlBlock::kNear, NearWord::make(target_, self_), 0);
          step_ = Step::kLeft;
          break;
        case Step::kLeft:
          step_ = Step::kDone;
          if (operation_.value() == NearWord::make(target_, self_)) break;
          memory_.compare_and_swap(operation_, self_, ControlBlock::kNearNext, 0, NearNext::kGone);
          step_ = Step::kMarked;
          break;
        case Step::kMarked:
          step_ = Step::kDone;
          if (operation_.value() != 0) lead(operation_.value());
          break;
        case Step::kDone: break;
      }
    }
    return step_ == Step::kDone && operation_.done();
  }

 private:
  enum class Step : std::uint8_t { kBegin, kLeft, kMarked, kDone };

  void lead(std::uint64_t next) {
    memory_.own_fetch_add(ControlBlock::kNearNext, -next);
    memory_.write_unawaited(NearNext::rank(next), ControlBlock::kNearWake, NearWake::kLead);
    step_ = Step::kDone;
  }

  N& memory_;
  typename N::Operation operation_;
  int self_;
  int target_;
  int home_;
  Step step_ = Step::kBegin;
};

// Whether a lock with this HeldLock::near may be handed to a next rank, and there is one.
template <class N>
bool may_pass_near(const N& memory, std::uint32_t near, const NearPlace& place) {
  return near != 0 && near <= place.most && memory.own(ControlBlock::kNearNext) != 0;
}
// Hands the lock and the global lock to the next rank. Precondition: may_pass_near(), and the data are complete.
template <class N>
void pass_near(N& memory, std::uint32_t near, LockToken token, LockToken global_lock_token) {
  const std::uint64_t next = memory.own(ControlBlock::kNearNext);
  memory.own_fetch_add(ControlBlock::kNearNext, -next);
  memory.write_unawaited(NearNext::rank(next), ControlBlock::kNearToken, global_lock_token.bits());
  memory.write_unawaited(NearNext::rank(next), ControlBlock::kNearWake, NearWake::hold(token, near));
}

}  // namespace farside::epochs
