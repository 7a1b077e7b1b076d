// SPDX-License-Identifier: BSD-3-Clause
// The words of the passive-target lock and of the global lock, bit by bit. lock.hpp has the protocol.
#pragma once

#include <algorithm>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "epochs/rules/epoch_state.hpp"

namespace farside::epochs {

// Which call a lock of a rank is of.
enum class LockOf : std::uint8_t { kTarget, kAll };  // MPI_Win_lock, MPI_Win_lock_all

// lock, at the target, and global lock, at the window's home rank: who is present, that is, holds or waits.
//
//    63        43 42       39 38 37        19 18         0
//   |   ticket   | lock_alls | e |  writers  |  readers   |
//
//   ticket     number that the next to come takes; wraps off the top
//   lock_alls  how many of the readers are lock_alls of other ranks, where there is no global lock (at most 15: nothing
//              carries). A post looks at it: it may meet a lock_all, but no lock of its rank. Of those that the next
//              owner is to take off the lock word (LockToken), the readers stay there for longer than the lock_alls;
//              then a writer is there, too
//   e          the rank is exposed by a post (kept for the rules; not at the global lock)
//   writers    exclusive locks held or awaited; at the global lock those of all targets   (at most 2^19 - 1: nothing
//              carries)
//   readers    shared locks held or awaited; at the global lock lock_alls
struct LockWord {
  static constexpr unsigned kCountBits = 19;
  static constexpr std::uint64_t kReader = 1;
  static constexpr std::uint64_t kWriter = kReader << kCountBits;
  static constexpr std::uint64_t kExposed = kWriter << kCountBits;
  static constexpr std::uint64_t kLockAll = 2 * kExposed;
  static constexpr std::uint64_t kMostLockAlls = 15;
  static constexpr std::uint64_t kTicket = kLockAll * (kMostLockAlls + 1);
  static constexpr std::uint64_t kTickets = 1ULL << 21;
  static constexpr std::uint64_t kMostPresent = kWriter - 1;  // in each group

  // What coming and leaving add.
  static constexpr std::uint64_t arrive(LockType type, LockOf of = LockOf::kTarget) {
    return kTicket + one(type) + mark(of);
  }
  static constexpr std::uint64_t depart(LockType type, std::uint64_t count = 1) { return -(count * one(type)); }
  static constexpr std::uint64_t depart(LockType type, LockOf of) { return depart(type) - mark(of); }
  // What is added for a lock_all.
  static constexpr std::uint64_t mark(LockOf of) { return of == LockOf::kAll ? kLockAll : 0; }
  static constexpr std::uint64_t readers(std::uint64_t word) { return word % kWriter; }
  static constexpr std::uint64_t writers(std::uint64_t word) { return (word / kWriter) % kWriter; }
  static constexpr std::uint64_t lock_alls(std::uint64_t word) { return (word / kLockAll) % (kMostLockAlls + 1); }
  // Whether somebody has locked this very rank, or waits for that.
  static constexpr bool locked(std::uint64_t word) { return writers(word) != 0 || readers(word) != lock_alls(word); }
  // The bits of whoever keeps a lock of a rank from being held at once, of the rules too.
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
  static constexpr std::uint64_t after(std::uint64_t ticket, std::uint64_t steps = 1) {
    return (ticket + steps) % kTickets;
  }
  // How far `ticket` is behind `earlier`.
  static constexpr std::uint64_t distance(std::uint64_t ticket, std::uint64_t earlier) {
    return (ticket - earlier) % kTickets;
  }
};
static_assert(LockWord::kTicket * (LockWord::kTickets - 1) + (LockWord::kTicket - 1) == ~std::uint64_t{0});
// Tickets of those present are told apart, before and behind.
static_assert(2 * LockWord::kMostPresent < LockWord::kTickets);

constexpr LockType opposite(LockType type) {
  return type == LockType::kShared ? LockType::kExclusive : LockType::kShared;
}

// So many of a group, its first, are released by their successor. The lock word still shows them after they have left:
// a few enough for those behind them to find that they have got within reach of the ring.
constexpr std::uint64_t kMostReleasedBySuccessor = std::max<std::uint64_t>(ControlBlock::kRingSlots / 4, 1);

// Who waits, and on which of its wake words: never 0, and less than 2^kBits.
struct WaiterId {
  static constexpr std::uint64_t kNodes = 8;
  static constexpr unsigned kBits = 23;
  // A window of more ranks would have two with one id, and lock words that carry: besides one lock of each rank, a lock
  // word counts those that were released by their successor and are not yet taken off it.
  static constexpr std::uint64_t kMostRanks =
      std::min((std::uint64_t{1} << kBits) / kNodes - 1, LockWord::kMostPresent - kMostReleasedBySuccessor);
  static constexpr bool has_room_for(int ranks) { return static_cast<std::uint64_t>(ranks) <= kMostRanks; }
  static constexpr std::uint64_t make(int rank, std::uint32_t node) {
    return (static_cast<std::uint64_t>(rank) + 1) * kNodes + node;
  }
  static constexpr int rank(std::uint64_t id) { return static_cast<int>(id / kNodes) - 1; }
  static constexpr std::uint32_t wake_word(std::uint64_t id) {
    return ControlBlock::wake_word(static_cast<std::uint32_t>(id % kNodes));
  }
};
static_assert(ControlBlock::kWakeWords <= WaiterId::kNodes);

// drain, beside the lock or the global lock: the members of one group that must leave before somebody of the other
// holds.
//
//    63            44 43                  21 20             0
//   |      end       |  waiter id            |  left (signed) |
//
//   left    members that left while somebody of the other group was present, less those that the waiter waits for:
//           whoever brings it to 0 with a waiter there is the last, and wakes it
//   waiter  the first of the other group in turn
//   end     if they were let in in front of the waiter: how many of them are released by their successor, that is,
//           leave in this word only and are taken off the lock word by the waiter. Else, at the global lock: if no
//           member waited when the last one left, how many of the other group did then
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
  // What one who leaves adds; `end` unless 0.
  static constexpr std::uint64_t depart(std::uint64_t end) { return kOne + (end << kEndShift); }
  // What announces a waiter that waits for `count` to leave, and releases `end` of them, and what takes it back when
  // they are gone.
  static constexpr std::uint64_t announce(std::uint64_t waiter, std::uint64_t count, std::uint64_t end) {
    return (waiter << kWaiterShift) + (end << kEndShift) - count;
  }
  static constexpr std::uint64_t withdraw(std::uint64_t waiter, std::uint64_t end) {
    return -((waiter << kWaiterShift) + (end << kEndShift));
  }

 private:
  static constexpr std::uint64_t without_departed(std::uint64_t word) {
    return word - static_cast<std::uint64_t>(departed(word));
  }
};
static_assert(DrainWord::kEndShift + 20 == 64);

// What one who gets the hand-off passes on, from the ticket after its own.
//
//    21                  1     0
//   |  count              | next |
//
//   next 0   to the holders of `count` tickets, all of its group, and to nobody after them; 0: to nobody
//   next 1   to its group up to the first ticket of the other group, which is the next owner; `count` of the group hold
//            or have been let in so far, and must leave before that one holds
//
// Of those who go in front of a next owner, the first are released by their successor (LockToken); one that is, and
// passes nothing on, gets it with next 1 and count 0.
struct HandOff {
  static constexpr unsigned kBits = 22;
  static constexpr std::uint64_t released_by_successor(std::uint64_t group) {
    return std::min(group, kMostReleasedBySuccessor);
  }

  std::uint64_t count = 0;
  bool to_next = false;

  static constexpr HandOff members(std::uint64_t count) { return {count, false}; }
  static constexpr HandOff next_after(std::uint64_t count) { return {count, true}; }
  // Of the first of a group of `present`, of which nobody holds yet, when `others` wait.
  static constexpr HandOff behind(std::uint64_t others, std::uint64_t present) {
    return others == 0 ? members(present - 1) : next_after(1);
  }
  static constexpr HandOff of(std::uint64_t bits) { return {bits >> 1, (bits & 1) != 0}; }
  constexpr std::uint64_t bits() const { return count << 1 | (to_next ? 1 : 0); }
  constexpr bool is_nothing() const { return bits() == 0; }
};

// How a lock that is held is to be given back: what AcquireLock leaves to ReleaseLock.
//
//    63    48 47  46 45         23 22          0
//   | unused |  how |  what       |   ticket    |
//
//   ticket     its own: a writer that is alone hands the lock off from there
//   plain      it takes itself off the lock word, and counts in the drain word if somebody of the other group is
//              present
//   released by its successor   it counts in the drain word, and who is the next owner takes it off the lock word
//   releases its predecessors   what: how many of the other group left so, and are to be taken off the lock word with
//                               it
//   successor  what: the waiter id of the next owner, which waits for this one only
class LockToken {
 public:
  enum How : std::uint64_t { kPlain, kReleasedBySuccessor, kReleasesPredecessors, kSuccessor };
  constexpr LockToken() = default;
  constexpr explicit LockToken(std::uint64_t ticket, How how = kPlain, std::uint64_t what = 0)
      : bits_(ticket | what << kWhatShift | how << kHowShift) {}
  constexpr How how() const { return static_cast<How>(bits_ >> kHowShift); }
  constexpr std::uint64_t ticket() const { return bits_ % (1ULL << kWhatShift); }
  constexpr std::uint64_t predecessors() const { return how() == kReleasesPredecessors ? what() : 0; }
  constexpr std::uint64_t successor() const { return how() == kSuccessor ? what() : 0; }
  constexpr bool operator==(const LockToken&) const = default;

 private:
  static constexpr unsigned kWhatShift = 23;
  static constexpr unsigned kHowShift = kWhatShift + WaiterId::kBits;
  constexpr std::uint64_t what() const { return (bits_ >> kWhatShift) % (1ULL << WaiterId::kBits); }
  std::uint64_t bits_ = 0;
};
static_assert(LockWord::kTickets <= 1ULL << 23);

// A slot of a ring, at the lock or the global lock: where the holder of a ticket and the one who hands it the lock
// agree who came first. 0: empty.
//
//    63       52 51         29 28        3   2     1   0
//   |  unused   |   ticket    |  what     | excl |  state |
//
//   waiting  the holder of the ticket sleeps; what: its waiter id; excl: what it waits for
//   turn     it has the hand-off, and only has to come and see; what: the HandOff that it takes over; excl: whose group
//            that is. (If it is of the other one, it is the next owner itself, after `count` have left.)
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
  // Whether the holder of a later ticket than `than` sleeps there.
  static constexpr bool is_later(std::uint64_t slot, std::uint64_t than) {
    const std::uint64_t behind = LockWord::distance(ticket(slot), than);
    return state(slot) == kWaiting && behind != 0 && behind < LockWord::kTickets / 2;
  }
};
static_assert(WaiterId::kBits <= RingSlot::kTicketShift - RingSlot::kWhatShift);
static_assert(HandOff::kBits <= RingSlot::kTicketShift - RingSlot::kWhatShift);

// wake[i], at the waiter: 0 while it waits.
//
//    63      2   1   0
//   |   what    |  how  |
struct WakeValue {
  enum How : std::uint64_t {
    kHandOff = 1,  // it has the hand-off; what: the HandOff that it takes over
    kDrained = 2,  // those it waited for have left, and it takes itself out of the drain word; what: end of that
    kAgain = 3,    // its slot was taken from it for an earlier ticket: it comes again
  };
  static constexpr std::uint64_t make(How how, std::uint64_t what = 0) { return how | what << 2; }
  static constexpr How how(std::uint64_t word) { return static_cast<How>(word % 4); }
  static constexpr std::uint64_t what(std::uint64_t word) { return word >> 2; }
};

// Who is compatible with whom: readers always are with each other, readers and writers never.
template <bool kWritersCompatible>
struct Compatibility {
  static constexpr bool kWritersShare = kWritersCompatible;
  static constexpr bool compatible(LockType type) { return type == LockType::kShared || kWritersCompatible; }
  // Of the word before: whether who came holds at once, and whether who left has nobody to tell.
  static constexpr bool holds_at_once(std::uint64_t before, LockType type) {
    return LockWord::present(before, opposite(type)) == 0 && (compatible(type) || LockWord::present(before, type) == 0);
  }
  static constexpr bool nobody_waits(std::uint64_t before, LockType type) {
    return LockWord::present(before, opposite(type)) == 0 && (compatible(type) || LockWord::present(before, type) == 1);
  }
};

// Where the words of a lock are.
struct TargetLock : Compatibility<false> {
  static constexpr std::uint32_t kWord = ControlBlock::kLock;
  // Of the group that must leave: always readers, as a writer that leaves hands the lock off itself.
  static constexpr std::uint32_t drain_word(LockType) { return ControlBlock::kDrain; }
  static constexpr std::uint32_t ring_word(std::uint64_t ticket) { return ControlBlock::ring_word(ticket); }
};

// Readers are lock_alls, writers are who locks any target exclusively.
struct GlobalLock : Compatibility<true> {
  static constexpr std::uint32_t kWord = ControlBlock::kGlobalLock;
  static constexpr std::uint32_t drain_word(LockType leaving) {
    return ControlBlock::kGlobalLockDrain + (leaving == LockType::kExclusive ? 8U : 0U);
  }
  static constexpr std::uint32_t ring_word(std::uint64_t ticket) { return ControlBlock::global_lock_ring_word(ticket); }
};

}  // namespace farside::epochs
