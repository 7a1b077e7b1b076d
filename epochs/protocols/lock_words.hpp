// SPDX-License-Identifier: BSD-3-Clause
// Layouts of the words of the passive-target lock and of the global lock. lock.hpp describes the protocol.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "epochs/rules/epoch_state.hpp"

namespace farside::epochs {

// Which lock: that of a rank, taken by MPI_Win_lock or by MPI_Win_lock_all, or the global lock.
enum class LockOf : std::uint8_t { kTarget, kAll, kGlobal };

// Lock word: the word `lock` at the target, or `global lock` at the window's home rank. It counts the processes that
// are present, that is, hold the lock or wait for it.
//
//    63        43 42       39 38 37        19 18         0
//   |   ticket   | lock_alls | e |  writers  |  readers   |
//
//   ticket     next ticket to be taken; wraps off the top of the word
//   lock_alls  readers that are lock_alls of other ranks, in a window without a global lock: at most 15, so the field
//              never carries. A post reads the field: a post may meet a lock_all, but no MPI_Win_lock of its rank. A
//              reader that is released by its successor (LockToken) clears its lock_all mark before the successor takes
//              the reader off; in between a writer is present, so locked() stays true
//   e          the rank is exposed by a post (exposure.hpp); unused in the global lock
//   writers    exclusive locks held or awaited; in the global lock those of all targets. At most 2^19 - 1, so the field
//              never carries
//   readers    shared locks held or awaited; in the global lock lock_alls
struct LockWord {
  static constexpr unsigned kCountBits = 19;
  static constexpr std::uint64_t kReader = 1;
  static constexpr std::uint64_t kWriter = kReader << kCountBits;
  static constexpr std::uint64_t kExposed = kWriter << kCountBits;
  static constexpr std::uint64_t kLockAll = 2 * kExposed;
  static constexpr std::uint64_t kMostLockAlls = 15;
  static constexpr std::uint64_t kTicket = kLockAll * (kMostLockAlls + 1);
  static constexpr std::uint64_t kTickets = 1ULL << 21;
  static constexpr std::uint64_t kMostPresent = kWriter - 1;  // per group

  // Addends of the arrival and of the departure of a lock.
  static constexpr std::uint64_t arrive(LockType type, LockOf of = LockOf::kTarget) {
    return kTicket + one(type) + mark(of);
  }
  static constexpr std::uint64_t depart(LockType type, std::uint64_t count = 1) { return -(count * one(type)); }
  static constexpr std::uint64_t depart(LockType type, LockOf of) { return depart(type) - mark(of); }
  // Addend that marks a reader as a lock_all.
  static constexpr std::uint64_t mark(LockOf of) { return of == LockOf::kAll ? kLockAll : 0; }
  static constexpr std::uint64_t readers(std::uint64_t word) { return word % kWriter; }
  static constexpr std::uint64_t writers(std::uint64_t word) { return (word / kWriter) % kWriter; }
  static constexpr std::uint64_t lock_alls(std::uint64_t word) { return (word / kLockAll) % (kMostLockAlls + 1); }
  // Whether an MPI_Win_lock of this rank is held or awaited.
  static constexpr bool locked(std::uint64_t word) { return writers(word) != 0 || readers(word) != lock_alls(word); }
  // The bits of the lock word each of which prevents a new lock of this type from being held at once. They include the
  // exposure mark.
  static constexpr std::uint64_t contenders(LockType type) {
    constexpr std::uint64_t kReaders = kWriter - 1;
    constexpr std::uint64_t kWriters = kExposed - kWriter;
    return kExposed | kWriters | (type == LockType::kShared ? 0 : kReaders);
  }
  static constexpr std::uint64_t one(LockType type) { return type == LockType::kShared ? kReader : kWriter; }
  static constexpr std::uint64_t present(std::uint64_t word, LockType type) {
    return type == LockType::kShared ? readers(word) : writers(word);
  }
  static constexpr bool exposed(std::uint64_t word) { return (word & kExposed) != 0; }
  static constexpr std::uint64_t ticket(std::uint64_t word) { return word / kTicket; }
  static constexpr std::uint64_t with_nobody_present(std::uint64_t word) { return word & -kTicket; }
  static constexpr std::uint64_t after(std::uint64_t ticket, std::uint64_t steps = 1) {
    return (ticket + steps) % kTickets;
  }
  // Returns how many tickets `ticket` lies behind `earlier`.
  static constexpr std::uint64_t distance(std::uint64_t ticket, std::uint64_t earlier) {
    return (ticket - earlier) % kTickets;
  }
};
static_assert(LockWord::kTicket * (LockWord::kTickets - 1) + (LockWord::kTicket - 1) == ~std::uint64_t{0});
// Differences of the tickets of present processes have a definite sign.
static_assert(2 * LockWord::kMostPresent < LockWord::kTickets);

constexpr LockType opposite(LockType type) {
  return type == LockType::kShared ? LockType::kExclusive : LockType::kShared;
}

// At most this many members of a group, its first, are released by their successor. Until then the lock word counts
// such a member although it has departed. Waiters beyond the ring estimate the front from these counts; a quarter of
// the ring leaves them room to see that they are within reach.
constexpr std::uint64_t kMostReleasedBySuccessor = std::max<std::uint64_t>(ControlBlock::kRingSlots / 4, 1);

// Identifies a waiting process and the wake word on which it waits. Never 0, and less than 2^kBits.
struct WaiterId {
  static constexpr std::uint64_t kWakeIndexes = 8;
  static constexpr unsigned kBits = 23;
  // In a larger window two ranks could have the same id, or a count in a lock word could overflow into the next field.
  // Besides one lock per rank, a lock word counts the members that are released by their successor, and a writer that
  // the next one departs for, and are not yet subtracted from it.
  static constexpr std::uint64_t kMostRanks =
      std::min((std::uint64_t{1} << kBits) / kWakeIndexes - 1, LockWord::kMostPresent - kMostReleasedBySuccessor - 1);
  static constexpr bool has_room_for(int ranks) { return static_cast<std::uint64_t>(ranks) <= kMostRanks; }
  static constexpr std::uint64_t make(int rank, std::uint32_t wake_index) {
    return (static_cast<std::uint64_t>(rank) + 1) * kWakeIndexes + wake_index;
  }
  static constexpr int rank(std::uint64_t id) { return static_cast<int>(id / kWakeIndexes) - 1; }
  static constexpr std::uint32_t wake_word(std::uint64_t id) {
    return ControlBlock::wake_word(static_cast<std::uint32_t>(id % kWakeIndexes));
  }
};
static_assert(ControlBlock::kWakeWords <= WaiterId::kWakeIndexes);
static_assert(WaiterId::kMostRanks <= std::uint64_t{1} << ControlBlock::kBarrierRounds);

// Drain word, beside a lock or the global lock: counts the members of one group that must depart before a waiter of
// the other group holds the lock.
//
//    63            44 43                  21 20             0
//   |      end       |  waiter id            | departed      |
//
//   departed  signed: members that departed while the other group was present, less the members that the waiter waits
//             for. The member whose departure brings the field to 0 while a waiter is entered wakes that waiter
//   waiter    the next owner, of the other group
//   end       if the members were let in before the waiter: how many of them are released by their successor, that is,
//             count their departure in this word only and are taken off the lock word by the waiter. Otherwise, at the
//             global lock: the number of members of the other group that waited when the last member departed, if no
//             member of its own group waited then
struct DrainWord {
  static constexpr std::uint64_t kOne = 1;
  static constexpr unsigned kWaiterShift = 21;
  static constexpr unsigned kEndShift = kWaiterShift + WaiterId::kBits;

  static constexpr std::int64_t departed(std::uint64_t word) {
    return static_cast<std::int64_t>(word << (64 - kWaiterShift)) >> (64 - kWaiterShift);
  }
  static constexpr std::uint64_t waiter(std::uint64_t word) {
    return (without_departed(word) >> kWaiterShift) % (1ULL << WaiterId::kBits);
  }
  static constexpr std::uint64_t end(std::uint64_t word) { return without_departed(word) >> kEndShift; }
  // Addend of a departure; sets `end` unless `end` is 0.
  static constexpr std::uint64_t depart(std::uint64_t end) { return kOne + (end << kEndShift); }
  // announce(): the addend by which a waiter enters its id and starts to wait for `count` departures. The waiter
  // releases `end` of these members. withdraw(): the addend that removes the id and `end` after the members have
  // departed.
  static constexpr std::uint64_t announce(std::uint64_t waiter, std::uint64_t count, std::uint64_t end) {
    return (waiter << kWaiterShift) + (end << kEndShift) - count;
  }
  static constexpr std::uint64_t withdraw(std::uint64_t waiter, std::uint64_t end) {
    return -((waiter << kWaiterShift) + (end << kEndShift));
  }
  // The addend after which no number of departures brings the field to 0, and whether it was added.
  static constexpr std::uint64_t lose() { return -(LockWord::kMostPresent + 1); }
  static constexpr bool is_lost(std::uint64_t word) {
    return departed(word) < -static_cast<std::int64_t>(LockWord::kMostPresent);
  }

 private:
  static constexpr std::uint64_t without_departed(std::uint64_t word) {
    return word - static_cast<std::uint64_t>(departed(word));
  }
};
static_assert(DrainWord::kEndShift + 20 == 64);
static_assert(2 * (LockWord::kMostPresent + 1) <= std::uint64_t{1} << (DrainWord::kWaiterShift - 1));

// Hand-off: what the receiver passes on, starting at the ticket after its own.
//
//    21                  1     0
//   |  count              | next |
//
//   next 0   to the holders of the next `count` tickets, which are all of the receiver's group, and to no other
//   next 1   to the waiters of the receiver's group up to the first ticket of the other group; the holder of that
//            ticket becomes the next owner. `count` members of the group hold the lock or have been let in so far, and
//            must depart before the next owner holds it
//
// Of the members that precede a next owner, the first kMostReleasedBySuccessor are released by their successor
// (LockToken). Such a member that has nothing to pass on receives next 1 with count 0.
struct HandOff {
  static constexpr unsigned kBits = 22;
  static constexpr std::uint64_t released_by_successor(std::uint64_t group) {
    return std::min(group, kMostReleasedBySuccessor);
  }

  std::uint64_t count = 0;
  bool to_next = false;

  static constexpr HandOff members(std::uint64_t count) { return {count, false}; }
  static constexpr HandOff next_after(std::uint64_t count) { return {count, true}; }
  // The hand-off of the first member of a group of `present` members, none of which holds yet, while `others` wait.
  static constexpr HandOff behind(std::uint64_t others, std::uint64_t present) {
    return others == 0 ? members(present - 1) : next_after(1);
  }
  static constexpr HandOff of(std::uint64_t bits) { return {bits >> 1, (bits & 1) != 0}; }
  constexpr std::uint64_t bits() const { return count << 1 | (to_next ? 1 : 0); }
  constexpr bool is_nothing() const { return bits() == 0; }
};

// Lock token: how a held lock is to be released. AcquireLock makes it, ReleaseLock uses it.
//
//    63    49 48  46 45         23 22          0
//   | unused |  how |  what       |   ticket    |
//
//   ticket                  of the lock; a writer of a target hands the lock off to the tickets that follow
//   kPlain                  the release takes the lock off the lock word, and counts in the drain word if the other
//                           group is present
//   kQueued                 the same, and the lock was contended when it was acquired
//   kOwesDeparture          the same, and the release takes the former owner off the lock word as well
//   kReleasedBySuccessor    the release counts in the drain word; the next owner takes the lock off the lock word
//   kReleasesPredecessors   what: how many members of the other group were released by this successor and are taken off
//                           the lock word together with it
//   kSuccessor              what: the waiter id of the next owner, which waits for this lock only. A writer of a target
//                           wakes it without a departure
class LockToken {
 public:
  enum How : std::uint64_t { kPlain, kQueued, kOwesDeparture, kReleasedBySuccessor, kReleasesPredecessors, kSuccessor };
  constexpr LockToken() = default;
  constexpr explicit LockToken(std::uint64_t ticket, How how = kPlain, std::uint64_t what = 0)
      : bits_(ticket | what << kWhatShift | how << kHowShift) {}
  constexpr How how() const { return static_cast<How>(bits_ >> kHowShift); }
  constexpr std::uint64_t ticket() const { return bits_ % (1ULL << kWhatShift); }
  constexpr std::uint64_t predecessors() const { return how() == kReleasesPredecessors ? what() : 0; }
  constexpr std::uint64_t owed() const { return how() == kOwesDeparture ? 1 : 0; }
  constexpr std::uint64_t successor() const { return how() == kSuccessor ? what() : 0; }
  constexpr bool operator==(const LockToken&) const = default;
  // For near_lock.hpp: less than 2^kBits.
  static constexpr unsigned kBits = 49;
  static constexpr LockToken of(std::uint64_t bits) {
    LockToken token;
    token.bits_ = bits;
    return token;
  }
  constexpr std::uint64_t bits() const { return bits_; }

 private:
  static constexpr unsigned kWhatShift = 23;
  static constexpr unsigned kHowShift = kWhatShift + WaiterId::kBits;
  constexpr std::uint64_t what() const { return (bits_ >> kWhatShift) % (1ULL << WaiterId::kBits); }
  std::uint64_t bits_ = 0;
};
static_assert(LockWord::kTickets <= 1ULL << 23);

// Slot of a ring, at a lock or the global lock. The holder of a ticket and the process that passes the hand-off meet
// in the slot by compare-and-swap. 0: empty.
//
//    63       52 51         29 28        3   2     1   0
//   |  unused   |   ticket    |  what     | excl |  state |
//
//   kWaiting  the holder of the ticket waits; what: its waiter id; excl: the type of its lock
//   kHandOff  the hand-off was passed before the holder of the ticket reached the slot; what: the HandOff to take over;
//             excl: the group of the hand-off. A holder of the other group is the next owner itself, after `count`
//             departures
struct RingSlot {
  enum State : std::uint64_t { kEmpty = 0, kWaiting = 1, kHandOff = 2 };
  static constexpr std::uint64_t kExclusive = 4;
  static constexpr unsigned kWhatShift = 3;
  static constexpr unsigned kTicketShift = 29;

  static constexpr std::uint64_t make(State state, std::uint64_t ticket, std::uint64_t what, LockType type) {
    return state | (type == LockType::kExclusive ? kExclusive : 0) | (what << kWhatShift) | (ticket << kTicketShift);
  }
  static constexpr State state(std::uint64_t slot) { return static_cast<State>(slot % 4); }
  static constexpr LockType type(std::uint64_t slot) {
    return (slot & kExclusive) != 0 ? LockType::kExclusive : LockType::kShared;
  }
  static constexpr std::uint64_t what(std::uint64_t slot) {
    return (slot >> kWhatShift) % (1ULL << (kTicketShift - kWhatShift));
  }
  static constexpr std::uint64_t ticket(std::uint64_t slot) { return slot >> kTicketShift; }
  static constexpr bool is_of(std::uint64_t slot, std::uint64_t of) { return slot != kEmpty && ticket(slot) == of; }
  // Whether the holder of a later ticket than `than` waits in the slot.
  static constexpr bool is_later(std::uint64_t slot, std::uint64_t than) {
    const std::uint64_t behind = LockWord::distance(ticket(slot), than);
    return state(slot) == kWaiting && behind != 0 && behind < LockWord::kTickets / 2;
  }
};
static_assert(WaiterId::kBits <= RingSlot::kTicketShift - RingSlot::kWhatShift);
static_assert(HandOff::kBits <= RingSlot::kTicketShift - RingSlot::kWhatShift);

// Wake word wake[i], at the waiter: 0 while it waits.
//
//    63      3   2   0
//   |   what    |  how  |
struct WakeValue {
  enum How : std::uint64_t {
    kHandOff = 1,  // the hand-off has arrived; what: the HandOff to take over
    kDrained = 2,  // the members of the drain word have departed, and the waiter withdraws from it; what: its `end`
    kAgain = 3,    // the slot was taken for an earlier ticket, and the waiter must take a slot again
    kWithSuccessor = 4,  // to a writer of a target: it is the owner; what: the waiter id of the next owner, a writer
    kOwed = 5,           // likewise: it is the owner, and departs for the former owner as well
  };
  static constexpr std::uint64_t make(How how, std::uint64_t what = 0) { return how | what << kWhatShift; }
  static constexpr How how(std::uint64_t word) { return static_cast<How>(word % (1U << kWhatShift)); }
  static constexpr std::uint64_t what(std::uint64_t word) { return word >> kWhatShift; }

 private:
  static constexpr unsigned kWhatShift = 3;
};

// The words of a lock at the rank that has it, and whose members hold it together: readers always, writers (exclusive
// locks of any targets) only the global lock.
struct LockPlace {
  bool global = false;

  constexpr std::uint32_t word() const { return global ? ControlBlock::kGlobalLock : ControlBlock::kLock; }
  // Of the group that must depart. At a target only readers drain: a departing writer hands the lock off itself.
  constexpr std::uint32_t drain_word(LockType leaving) const {
    if (!global) return ControlBlock::kDrain;
    return ControlBlock::kGlobalLockDrain + (leaving == LockType::kExclusive ? 8U : 0U);
  }
  constexpr std::uint32_t ring_word(std::uint64_t ticket) const {
    return global ? ControlBlock::global_lock_ring_word(ticket) : ControlBlock::ring_word(ticket);
  }
  constexpr bool compatible(LockType type) const { return global || type == LockType::kShared; }
  // holds_at_once(): given the lock word before an arrival, whether the arriving process holds the lock at once.
  // nobody_waits(): given the lock word before a departure, whether the departing process needs to notify no other
  // process.
  constexpr bool holds_at_once(std::uint64_t before, LockType type) const {
    return LockWord::present(before, opposite(type)) == 0 && (compatible(type) || LockWord::present(before, type) == 0);
  }
  constexpr bool nobody_waits(std::uint64_t before, LockType type) const {
    return LockWord::present(before, opposite(type)) == 0 && (compatible(type) || LockWord::present(before, type) == 1);
  }
};
inline constexpr LockPlace kTargetLock{false}, kGlobalLock{true};

// The lock in whose queue a protocol waits: the rank and the offset of the lock word.
struct AwaitedLock {
  int rank;
  std::uint32_t word;
  bool near = false;  // in the queue of its near lock, whose first rank waits there for the others
};

}  // namespace farside::epochs
