// SPDX-License-Identifier: BSD-3-Clause
// The script of an actor of the explorer that uses the lock table of its rank, and its properties. Several actors
// (threads) share the table. Locks and lock_alls exclude each other as MPI requires. No actor acquires a lock before
// the data of the lock's last epoch are complete. At the end neither the table nor a control word holds a trace.
//
// When a rank has died, actors find lost locks as pmpi/window/lost_locks.cpp does, but without its looks, which are a
// matter of time. What the dead rank held excludes others for ever.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "tests/unit/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;
using epochs::HeldLock;
using epochs::LockToken;
using epochs::LockType;
using epochs::LockWord;
using epochs::NearPlace;

// A vector of bytes that can be copied.
template <class T>
class FewItems {
 public:
  using Backwards = std::reverse_iterator<T*>;
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  T& back() { return items_[count_ - 1]; }
  const T& back() const { return items_[count_ - 1]; }
  void push_back(const T& item) { items_.at(count_++) = item; }
  void pop_back() { items_[--count_] = T{}; }
  Backwards rbegin() { return Backwards(end()); }
  Backwards rend() { return Backwards(items_.data()); }
  T* end() { return items_.data() + count_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + count_; }

 private:
  std::array<T, 3> items_{};
  std::uint64_t count_ = 0;
};

struct ExploredLockTraits {
  static constexpr std::size_t kMostRanks = kRanks;
  template <class T>
  using List = FewItems<T>;
  struct Mutex {};
  struct Guard {
    explicit Guard(Mutex&) {}
    ~Guard() {}  // avoids warnings of unused objects
  };
};
using RightTable = epochs::LockTable<ExploredLockTraits>;

struct TableAction {
  enum class What : std::uint8_t { kLock, kDefer, kUnlock, kLockAll, kUnlockAll } what;
  LockType type;
  int target;
  int lock;  // of an unlock: its lock's place in the script
};
using TableScript = std::vector<TableAction>;

// MPI_Win_unlock. The data of the epoch are one addition. The release of the target's lock does not overtake it. The
// unlock waits for it (a flush) if the table requires this, and before data_complete().
template <class Table>
class Unlock {
 public:
  // `overtakes`: a defect: the unlock does not wait for the data when the table requires it. `data`: there are any.
  Unlock(Memory& memory, Table& table, const HeldLock& lock, const NearPlace& near, bool overtakes, bool data)
      : unlock_(memory, table, lock, near), target_(lock.target), begun_(overtakes) {
    if (data) memory.fetch_add(data_, target_, kData, 1);
  }
  bool advance() {
    if (data_.failed()) (void)data_.take_error();
    if (first_) {
      if (unlock_.needs_complete_data() && !begun_ && !data_.done()) return false;
      begun_ = true;
      if (!unlock_.advance() || !data_.done()) return false;
      first_ = false;
      unlock_.data_complete();
    }
    return unlock_.advance();
  }
  Memory::Operation* failed_operation() { return unlock_.failed_operation(); }

 private:
  epochs::UnlockTarget<Memory, Table> unlock_;
  Memory::Operation data_;
  int target_;
  bool begun_, first_ = true;
};

// The unlock of a deferred lock: one message that acquires and releases the lock, or stops if other locks exclude it.
template <class Table>
class UnlockDeferred {
 public:
  UnlockDeferred(Memory& memory, Table& table, const HeldLock& lock) : memory_(memory), table_(table), lock_(lock) {
    memory.locked(message_, lock.target, ControlBlock::kLock, LockWord::arrive(lock.type),
                  LockWord::contenders(lock.type), LockWord::depart(lock.type));
  }
  bool advance() {
    if (!answered_) {
      if (message_.failed()) return true;
      if (!message_.done()) return false;
      answered_ = true;
      const std::uint64_t before = message_.value();
      const std::uint64_t present = before + LockWord::arrive(lock_.type);
      if ((before & LockWord::contenders(lock_.type)) != 0) {
        lock_target_.emplace(memory_, table_, lock_.target, lock_.type, std::optional(before));
      } else if (!epochs::kTargetLock.nobody_waits(present, lock_.type)) {
        release_.emplace(memory_, lock_.target, lock_.type, LockToken(LockWord::ticket(before)), present);
      }
    }
    if (lock_target_) return lock_target_->advance();
    return !release_ || release_->advance();
  }
  Memory::Operation* failed_operation() { return lock_target_ ? lock_target_->failed_operation() : nullptr; }
  std::optional<epochs::AwaitedLock> awaited() const { return lock_target_ ? lock_target_->awaited() : std::nullopt; }
  void stop_waiting() { lock_target_->stop_waiting(); }
  bool refused() const { return lock_target_ && lock_target_->saw_exposure(); }
  // After the end of the protocol: the lock, if it was acquired after all and must be unlocked.
  std::optional<HeldLock> held() {
    if (!lock_target_ || !lock_target_->ok()) return {};
    lock_.token = lock_target_->token();
    return lock_;
  }

 private:
  Memory& memory_;
  Table& table_;
  HeldLock lock_;
  Memory::Operation message_;
  std::optional<epochs::LockTarget<Memory, Table>> lock_target_;
  std::optional<epochs::ReleaseLock<Memory>> release_;
  bool answered_ = false;
};

// With near locks these ranks share a node, and the others are far from it and from one another.
constexpr int kFirstNear = 2;
constexpr int kNearHome = 3;

// The defect of a case, which the explorer must find.
struct TableMistakes {
  bool forgets_deferred = false;  // another lock is acquired first, and then the deferred one
  bool overtakes_data = false;    // a global lock elsewhere is released before the data are complete
  int too_many_near = 0;          // more near hand-offs in a row than the bound
  bool no_data = false;           // no defect: the epochs have no data, for fewer states
  bool living_as_dead = false;    // a living holder does not keep a waiter from giving up
  // When a rank gives up, after another one has died. kWhatIsLost: at a lock in which that one had a part.
  // kWhatSeemsLost: at any lock, which must be such a one, when nothing else happens. kAnything: at any lock.
  // kWhatMoves, a defect: as kWhatSeemsLost, but at any time.
  enum class GivesUp : std::uint8_t { kWhatIsLost, kWhatSeemsLost, kAnything, kWhatMoves };
  GivesUp gives_up = GivesUp::kWhatIsLost;
};

template <class Table = RightTable>
class LockTableProgram {
  using What = TableAction::What;
  using LockTarget = epochs::LockTarget<Memory, Table>;
  using LockAll = epochs::LockAll<Memory, Table>;
  using UnlockAll = epochs::UnlockAll<Memory, Table>;

 public:
  struct Shared {
    struct Target {
      std::int8_t inside[kActors] = {};   // 0, or 1 + the type of the lock that the actor holds
      std::int8_t pending[kActors] = {};  // the same, while data of that epoch are outstanding
    };
    // Of near locks: the ranks in the queue, and what each ticket that waits may be overtaken by.
    struct Waiting {
      std::int8_t in_front = -1;  // places in front when the ticket was taken; -1: no ticket
      std::int8_t entered = 0;    // locks held since that exclude this one
      std::int8_t target = 0;     // -1: of a lock_all
    };
    Target targets[kRanks];
    Waiting waiting[kActors];
    std::int8_t near_queue[kActors] = {};  // 1 + actors
    std::int8_t all[kActors] = {};         // actors in a lock_all
    std::int8_t epoch_all[kRanks] = {};    // ranks in a lock_all epoch: MPI allows one
    // Bits: the locks that a dead rank held or requested; those that each rank has found lost.
    std::uint32_t of_dead = 0;
    std::uint32_t found_lost[kRanks] = {};
    std::uint32_t unused = 0;
    Table tables[kRanks];
  };
  struct Seen {
    int refused = 0, failed = 0, one_message = 0, stopped = 0, both_threads = 0;
    int gave_up = 0, without_global = 0;              // of these: to acquire the lock without the global lock
    int near = 0, led = 0, direct = 0, in_a_row = 0;  // exclusive locks by and without the near lock; maximum in a row
  };

  LockTableProgram() = default;
  LockTableProgram(const TableScript* script, const TableMistakes* mistakes, Seen* seen, const NearPlace& near)
      : script_(script), mistakes_(mistakes), seen_(seen), near_(near) {}

  bool over() const { return (state_ & kDead) != 0 || position_ == script_->size(); }
  bool begins() const { return !running_; }

  void die(const Memory& memory, Shared& shared) {
    const Table& table = shared.tables[memory.rank()];
    const auto had = [&](int target, LockType type) {
      shared.of_dead |= 1U << target;
      if (table.has_global_lock() && type == LockType::kExclusive) shared.of_dead |= kGlobalShared | kGlobalExclusive;
    };
    for (int target = 0; target < kRanks; ++target) {
      const std::int8_t inside = shared.targets[target].inside[memory.index()];
      if (inside != 0) had(target, static_cast<LockType>(inside - 1));
    }
    const bool all = shared.epoch_all[memory.rank()] != 0 || running_what_ == kEndAll;
    if (all) shared.of_dead |= table.has_global_lock() ? kGlobalShared | kGlobalExclusive : (1U << kRanks) - 1;
    if (running_ && running_what_ == kAcquireDeferred) had(table.locks().back().target, table.locks().back().type);
    if (running_ && running_what_ != kAcquireDeferred && running_what_ <= kUnlockDeferred)
      had((*script_)[position_].target, (*script_)[position_].type);
    running_.end();
    losing_.end();
    state_ = kDead;
    shared.waiting[memory.index()] = {};
  }

  // Whether it may find that the lock it waits for is lost, or has waited for too long after a failure.
  bool may_give_up(const MemoryState& memory_state, const Shared& shared) const {
    if (losing_) return false;
    const std::optional<epochs::AwaitedLock> lock = awaited();
    if (!lock || memory_state.dead == 0) return false;
    if ((state_ & kFailed) != 0) return true;
    const bool of_dead = mistakes_->gives_up != TableMistakes::GivesUp::kWhatIsLost || (shared.of_dead & bit_of(*lock));
    if (!of_dead) return false;
    const bool global = lock->word != ControlBlock::kLock;
    for (int rank = 0; rank < kRanks && !mistakes_->living_as_dead; ++rank) {
      if (memory_state.is_dead(rank) || rank == static_cast<int>(self_)) continue;
      for (const HeldLock& held : shared.tables[rank].locks()) {
        if ((global || held.target == lock->rank) && !memory_state.is_lost(held.target) &&
            held.holds_alone(held.target, memory_state.at(held.target, ControlBlock::kLock)))
          return false;
      }
    }
    return true;
  }
  void give_up(Memory& memory, Shared& shared) {
    const epochs::AwaitedLock lock = *awaited();
    MemoryState::Actor& own = memory.memory_state().actors[static_cast<std::size_t>(memory.index())];
    own.stirred = true;
    if ((state_ & kFailed) != 0) return stop_waiting();
    if (mistakes_->gives_up != TableMistakes::GivesUp::kAnything && (shared.of_dead & bit_of(lock)) == 0)
      memory.broken("a rank gives up a lock in which no dead one had a part");
    shared.of_dead |= bit_of(lock);
    if (bit_of(lock) == kGlobalExclusive) {
      losing_.template begin<epochs::LoseGlobalLock<Memory>>(memory, lock.rank);
    } else {
      declare_lost(shared, bit_of(lock), false);
    }
  }

  void step(Memory& memory, Shared& shared) {
    Table& table = shared.tables[memory.rank()];
    // A step reads and changes the table, so the other threads of the rank must step again.
    MemoryState& memory_state = memory.memory_state();
    for (MemoryState::Actor& each : memory_state.actors) each.stirred = each.stirred || each.rank == memory.rank();
    MemoryState::Actor& own = memory_state.actors[static_cast<std::size_t>(memory.index())];
    own.stirred = false;
    // With near locks the explorer relies on the argument for local steps where a rank has one thread.
    own.looked = near_.most == 0 || memory_state.dead != 0 ||
                 std::ranges::count(memory_state.actors, own.rank, &MemoryState::Actor::rank) > 1;
    if (losing_) {
      lose_global_lock(shared, table);
      own.stirred = !losing_;
      return;
    }
    if (!running_ && !begin(memory, shared, table)) return;
    if (!advance()) return;
    finish(memory, shared, table);
    own.stirred = own.stirred || static_cast<bool>(running_);  // an unlock that has issued nothing yet
  }

  void effect(const Request& request, Memory& memory, Shared& shared) {
    if (position_ == script_->size()) return;  // the post of a near lock
    const TableAction action = (*script_)[position_];
    if (near_.most > 0 && (state_ & kDead) == 0) note_arrival(request, memory, shared, action);
    const auto others = static_cast<std::uint64_t>(shared.tables[memory.rank()].ranks() - 1);
    if (request.word == ControlBlock::kLock &&
        LockWord::lock_alls(memory.memory_state().at(request.rank, request.word)) > others) {
      memory.broken("a lock word counts two lock_alls of one process");
    }
    if (action.what != What::kUnlock || request.rank != action.target) return;
    auto& target = shared.targets[action.target];
    if (request.kind == Kind::kLocked) {
      // The message held the lock for a moment, unless it was stopped.
      const bool stopped = (memory.memory_state().at(request.rank, request.word) & request.compare) != 0;
      if (!stopped) excludes_none(memory, shared, action.target, action.type);
      return;
    }
    // The data have arrived, or the release has, which the route orders after the data.
    if (running_what_ == kUnlock) target.pending[memory.index()] = 0;
  }

  std::uint64_t hash(std::uint64_t seed) const {
    seed = losing_.hash(running_.hash(mix(seed, position_)));
    return mix(mix(seed, running_what_), not_held_ + (forgotten_ << 32) + (state_ << 40));
  }
  static bool own_word(std::uint32_t word) {
    return (word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords) ||
           (word >= ControlBlock::kNearNext && word <= ControlBlock::kNearToken);
  }

  static bool at_once(std::uint32_t word) { return word >= ControlBlock::kNear && word <= ControlBlock::kNearToken; }

  static void check_end(const MemoryState& memory_state, const Shared& shared, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Table& table = shared.tables[rank];
      if (memory_state.is_dead(rank)) continue;
      // A rank that gave up may keep its near words, and a use of the global lock.
      if (!(memory_state.dead != 0 ? table.locks().empty() : table.is_idle()))
        failure = "in the end a lock table holds something";
      const auto in_use = static_cast<std::uint32_t>(std::popcount(table.wake_words_in_use()));
      if (in_use != 0 && memory_state.lost + memory_state.dead == 0) failure = "in the end a wake word is kept";
      if (in_use != table.kept_wake_words()) failure = "in the end a wake word is in use";
      if (memory_state.is_lost(rank)) continue;
      if (memory_state.dead != 0) {
        if ((shared.of_dead >> rank & 1) == 0 && LockWord::locked(memory_state.at(rank, ControlBlock::kLock)))
          failure = "in the end someone is left in the lock word of a lock that no dead rank has used";
        continue;
      }
      for (const std::uint32_t word : {ControlBlock::kLock, ControlBlock::kGlobalLock}) {
        if ((memory_state.at(rank, word) & ~LockWord::kExposed) % LockWord::kTicket != 0) {
          failure = "in the end someone is left in a lock word";
        }
      }
      for (std::uint32_t word = ControlBlock::kDrain; word < kData; word += 8) {
        const bool counts = word == ControlBlock::kGlobalLock || memory_state.at(rank, word) == 0;
        if (!counts) failure = "in the end something is left in word " + std::to_string(word);
      }
    }
  }

  std::string describe_position() const {
    if (over()) return "";
    const TableAction action = (*script_)[position_];
    static constexpr const char* kNames[] = {"lock", "deferred lock", "unlock", "lock_all", "unlock_all"};
    return std::string(" (") + (running_ ? "in " : "begins ") + kNames[static_cast<int>(action.what)] +
           (action.type == LockType::kShared ? " shared " : " exclusive ") + std::to_string(action.target) + ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  enum RunningWhat : std::uint64_t { kNothing, kLockTarget, kAcquireDeferred, kUnlock, kUnlockDeferred, kAll, kEndAll };
  // Of this actor: its rank has died; an operation of the protocol has failed; the lock that it waited for is lost;
  // the protocol began by the global lock.
  enum State : std::uint64_t { kDead = 1, kFailed = 2, kLost = 4, kWithGlobal = 8 };
  // Of Shared::of_dead, beside a bit per target.
  enum : std::uint32_t { kGlobalShared = 1U << kRanks, kGlobalExclusive = 2U << kRanks };

  std::optional<epochs::AwaitedLock> awaited() const {
    std::optional<epochs::AwaitedLock> lock;
    if (running_) with_waiting(*this, [&](const auto& protocol) { lock = protocol.awaited(); });
    return lock;
  }
  std::uint32_t bit_of(const epochs::AwaitedLock& lock) const {
    if (lock.word == ControlBlock::kLock) return 1U << lock.rank;
    return running_what_ == kAll ? kGlobalShared : kGlobalExclusive;
  }
  void stop_waiting() {
    with_waiting(*this, [](auto& protocol) { protocol.stop_waiting(); });
  }
  // The protocol that may wait for a lock.
  static void with_waiting(auto& self, auto&& use) {
    switch (self.running_what_) {
      case kLockTarget:
      case kAcquireDeferred: return use(self.running_.template get<LockTarget>());
      case kUnlockDeferred: return use(self.running_.template get<UnlockDeferred<Table>>());
      case kAll: return use(self.running_.template get<LockAll>());
      default: return;
    }
  }
  void declare_lost(Shared& shared, std::uint32_t lock, bool dispensable) {
    ++seen_->gave_up;
    shared.found_lost[self_] |= lock;
    if (!dispensable) state_ |= kLost;
    stop_waiting();
  }
  void lose_global_lock(Shared& shared, Table& table) {
    auto& lose = losing_.template get<epochs::LoseGlobalLock<Memory>>();
    if (Memory::Operation* failed = lose.failed_operation()) {
      (void)failed->take_error();
      losing_.end();
      state_ |= kLost;
      return stop_waiting();
    }
    if (!lose.advance()) return;
    const bool lost = lose.lost();
    losing_.end();
    declare_lost(shared, kGlobalExclusive, lost);
    if (lost) table.lose_global_lock();
  }
  // Locks that this rank has found lost are not tried again.
  bool is_known_lost(const Shared& shared, const Table& table, const TableAction& action) const {
    std::uint32_t needed = 1U << action.target;
    if (action.what == What::kLockAll) {
      needed = table.has_global_lock() ? kGlobalShared | kGlobalExclusive : (1U << kRanks) - 1;
    } else if (table.needs_global_lock(action.type)) {
      needed |= kGlobalExclusive;
    }
    return (shared.found_lost[self_] & needed) != 0;
  }

  bool was_held(int lock) const { return (not_held_ >> lock & 1) == 0; }

  // Returns false if no protocol object begins, because the action has to wait or is over already.
  bool begin(Memory& memory, Shared& shared, Table& table) {
    const TableAction action = (*script_)[position_];
    const int self = memory.index();
    self_ = static_cast<std::uint64_t>(memory.rank());
    state_ = 0;
    const bool locks = action.what == What::kLock || action.what == What::kDefer || action.what == What::kLockAll;
    if (locks && is_known_lost(shared, table, action)) {
      ++seen_->failed;
      not_held_ |= 1U << position_++;
      return false;
    }
    if (locks && table.has_deferred() && (!mistakes_->forgets_deferred || forgotten_ != 0)) {
      table.resume_deferred();
      const HeldLock& lock = table.deferred();
      running_.template begin<LockTarget>(memory, table, lock.target, lock.type);
      running_what_ = kAcquireDeferred;
      return true;
    }
    switch (action.what) {
      case What::kLock:
        running_.template begin<LockTarget>(memory, table, action.target, action.type, std::optional<std::uint64_t>(),
                                            false, memory.rank() < kFirstNear ? NearPlace{} : near_);
        running_what_ = kLockTarget;
        if (table.needs_global_lock(action.type)) state_ |= kWithGlobal;
        return true;
      case What::kDefer:
        table.defer(action.target, action.type);
        ++position_;
        return false;
      case What::kUnlock: {
        if (!was_held(action.lock)) {
          ++position_;
          return false;
        }
        const bool deferred = table.has_deferred() && table.deferred().target == action.target;
        const HeldLock lock = table.take(action.target);
        if (deferred) {
          table.resume_deferred();
          running_.template begin<UnlockDeferred<Table>>(memory, table, lock);
          running_what_ = kUnlockDeferred;
          return true;
        }
        begin_unlock(memory, shared, table, lock);
        return true;
      }
      case What::kLockAll:
        if (shared.epoch_all[memory.rank()] != 0) return false;
        shared.epoch_all[memory.rank()] = 1;
        running_.template begin<LockAll>(memory, table);
        running_what_ = kAll;
        return true;
      case What::kUnlockAll:
        if (!was_held(action.lock)) {
          ++position_;
          return false;
        }
        shared.epoch_all[memory.rank()] = 0;
        shared.all[self] = 0;
        running_.template begin<UnlockAll>(memory, table);
        running_what_ = kEndAll;
        return true;
    }
    return false;
  }
  void begin_unlock(Memory& memory, Shared& shared, Table& table, const HeldLock& lock) {
    auto& target = shared.targets[lock.target];
    target.inside[memory.index()] = 0;
    if (!memory.memory_state().is_lost(lock.target) && !mistakes_->no_data) {
      target.pending[memory.index()] = static_cast<std::int8_t>(1 + static_cast<int>(lock.type));
    }
    NearPlace near = near_;
    near.most += static_cast<std::uint32_t>(mistakes_->too_many_near);
    running_.template begin<Unlock<Table>>(memory, table, lock, near, mistakes_->overtakes_data, !mistakes_->no_data);
    running_what_ = kUnlock;
  }

  // As in a process, the protocol continues after a failure.
  template <class Protocol>
  bool advance_one() {
    auto& protocol = running_.template get<Protocol>();
    for (;;) {
      if (protocol.advance()) return true;
      bool failed = false;
      while (Memory::Operation* operation = protocol.failed_operation()) {
        (void)operation->take_error();
        state_ |= kFailed;
        failed = true;
      }
      if (!failed) return false;
    }
  }
  bool advance() {
    switch (running_what_) {
      case kLockTarget:
      case kAcquireDeferred: return advance_one<LockTarget>();
      case kUnlock: return advance_one<Unlock<Table>>();
      case kUnlockDeferred: return advance_one<UnlockDeferred<Table>>();
      case kAll: return advance_one<LockAll>();
      default: return advance_one<UnlockAll>();
    }
  }

  void finish(Memory& memory, Shared& shared, Table& table) {
    const TableAction action = (*script_)[position_];
    switch (running_what_) {
      case kLockTarget: {
        auto& lock = running_.template get<LockTarget>();
        if (lock.ok()) {
          const HeldLock held{action.target, action.type, true, false, lock.near(), lock.token()};
          enter(memory, shared, action.target, action.type);
          if (near_.most > 0) count_entry(memory, shared, action, lock.near());
          if (table.has_deferred()) {
            // The defect forgets_deferred: the deferred lock stays the last lock of the table, and is acquired next.
            const HeldLock deferred = table.locks().back();
            table.locks().back() = held;
            table.locks().push_back(deferred);
            forgotten_ = 1;
            end(memory);
            return;
          }
          table.locks().push_back(held);
        } else if ((state_ & (kWithGlobal | kFailed | kLost)) == kWithGlobal && !lock.saw_exposure() &&
                   !table.needs_global_lock(action.type)) {
          ++seen_->without_global;
          shared.waiting[memory.index()] = {};
          (void)leave_near_queue(shared, memory.index());
          return end(memory);  // and begins the action again
        } else {
          ++(lock.saw_exposure() ? seen_->refused : seen_->failed);
          not_held_ |= 1U << position_;
          shared.waiting[memory.index()] = {};
          (void)leave_near_queue(shared, memory.index());
        }
        break;
      }
      case kAcquireDeferred: {
        auto& lock = running_.template get<LockTarget>();
        HeldLock& deferred = table.locks().back();
        if (lock.ok()) {
          deferred.token = lock.token();
          enter(memory, shared, deferred.target, deferred.type);
        } else {
          ++seen_->failed;
          for (std::size_t i = 0; i < script_->size(); ++i) {
            if ((*script_)[i].what == What::kDefer && (*script_)[i].target == deferred.target) not_held_ |= 1U << i;
          }
          table.locks().pop_back();
        }
        end(memory);
        if (forgotten_ != 0) ++position_;  // the action itself is over; otherwise it begins next
        forgotten_ = 0;
        return;
      }
      case kUnlockDeferred: {
        const std::optional<HeldLock> lock = running_.template get<UnlockDeferred<Table>>().held();
        const bool refused = running_.template get<UnlockDeferred<Table>>().refused();
        end(memory);
        if (lock) {
          ++seen_->stopped;
          enter(memory, shared, lock->target, lock->type);
          begin_unlock(memory, shared, table, *lock);
        } else {
          ++(refused ? seen_->refused : seen_->one_message);
          ++position_;
        }
        return;
      }
      case kAll:
        if (running_.template get<LockAll>().ok()) {
          for (int target = 0; target < kRanks; ++target) meets_none(memory, shared, target, LockType::kShared);
          check_counted_apart(memory, table);
          if (near_.most > 0) count_entry(memory, shared, action, 0);
          shared.all[memory.index()] = 1;
        } else {
          ++seen_->failed;
          shared.epoch_all[memory.rank()] = 0;
          not_held_ |= 1U << position_;
        }
        break;
      case kUnlock: shared.targets[action.target].pending[memory.index()] = 0; break;
      default: break;
    }
    end(memory);
    ++position_;
  }
  void end(Memory& memory) {
    running_.end();
    running_what_ = kNothing;
    memory.retire_operations();
  }

  // Checks that no other actor holds a lock of the target that excludes this type, and that no data of such a lock are
  // outstanding.
  void meets_none(Memory& memory, const Shared& shared, int target, LockType type) {
    if (memory.memory_state().is_lost(target)) return;
    const auto excludes = [&](std::int8_t other) {
      return other != 0 && (type == LockType::kExclusive || other - 1 == static_cast<int>(LockType::kExclusive));
    };
    for (int other = 0; other < kActors; ++other) {
      if (other == memory.index()) continue;
      if (excludes(shared.targets[target].inside[other])) memory.broken("two hold locks that exclude each other");
      if (excludes(shared.targets[target].pending[other])) memory.broken("a lock is held before the data of the last");
    }
  }
  // Checks that, without a global lock, the lock word of each other rank counts this lock_all separately from
  // MPI_Win_locks.
  void check_counted_apart(Memory& memory, const Table& table) {
    for (int target = 0; target < table.ranks() && !table.has_global_lock(); ++target) {
      const std::uint64_t word = memory.memory_state().at(target, ControlBlock::kLock);
      if (target != memory.rank() && !memory.memory_state().is_lost(target) && LockWord::lock_alls(word) == 0)
        memory.broken("a lock_all counts as a lock of another rank");
    }
  }
  void excludes_none(Memory& memory, const Shared& shared, int target, LockType type) {
    meets_none(memory, shared, target, type);
    for (int other = 0; other < kActors; ++other) {
      if (type == LockType::kExclusive && shared.all[other] != 0) memory.broken("an exclusive lock meets a lock_all");
    }
  }
  // Of near locks.
  void note_arrival(const Request& request, Memory& memory, Shared& shared, const TableAction& action) {
    auto& own = shared.waiting[memory.index()];
    const std::uint64_t now = memory.memory_state().at(request.rank, request.word);
    if (request.kind == Kind::kCompareAndSwap && request.word == ControlBlock::kNear) {
      std::int8_t* const end = std::find(std::begin(shared.near_queue), std::end(shared.near_queue), 0);
      if (request.operand != 0 && now == request.operand) *end = static_cast<std::int8_t>(1 + memory.index());
    }
    if (request.kind != Kind::kFetchAdd || static_cast<std::int64_t>(request.operand << 1) < 0) return;
    const std::uint64_t before = now - request.operand;
    if (action.what == What::kLock && request.word == ControlBlock::kLock) {
      own = {static_cast<std::int8_t>(LockWord::writers(before) + LockWord::readers(before)), 0,
             static_cast<std::int8_t>(action.target)};
    } else if (action.what == What::kLockAll && request.word == ControlBlock::kGlobalLock) {
      own = {static_cast<std::int8_t>(LockWord::writers(before)), 0, -1};
    }
  }
  static bool leave_near_queue(Shared& shared, int actor) {
    std::int8_t* const end = std::end(shared.near_queue);
    std::int8_t* const own = std::find(std::begin(shared.near_queue), end, 1 + actor);
    if (own == end) return false;
    std::rotate(own, own + 1, end);
    end[-1] = 0;
    return true;
  }
  void count_entry(Memory& memory, Shared& shared, const TableAction& action, std::uint8_t near) {
    const int self = memory.index();
    if (near != 0) {
      if (shared.near_queue[0] != 1 + self) memory.broken("a rank overtook an earlier one in the near lock");
      seen_->in_a_row = std::max(seen_->in_a_row, near - 1);
    }
    (void)leave_near_queue(shared, self);
    ++(near > 1 ? seen_->near : near == 1 ? seen_->led : seen_->direct);
    const auto most = static_cast<int>(near_.most);
    if (near <= 1 && shared.waiting[self].entered > shared.waiting[self].in_front * (1 + most))
      memory.broken("a ticket was overtaken more often than the bound allows");
    shared.waiting[self] = {};
    for (int other = 0; other < kActors && action.type == LockType::kExclusive; ++other) {
      auto& waits = shared.waiting[other];
      if (waits.in_front >= 0 && (waits.target < 0 || waits.target == action.target)) ++waits.entered;
    }
  }
  void enter(Memory& memory, Shared& shared, int target, LockType type) {
    excludes_none(memory, shared, target, type);
    if (LockWord::exposed(memory.memory_state().at(target, ControlBlock::kLock)))
      memory.broken("a lock is held beside a post");
    shared.targets[target].inside[memory.index()] = static_cast<std::int8_t>(1 + static_cast<int>(type));
  }

  const TableScript* script_ = nullptr;
  const TableMistakes* mistakes_ = nullptr;
  Seen* seen_ = nullptr;
  std::uint64_t position_ = 0;
  std::uint64_t running_what_ = kNothing;
  std::uint64_t forgotten_ = 0;  // of TableMistakes::forgets_deferred: the deferred lock is to be acquired now
  std::uint64_t not_held_ = 0;   // bits: locks of the script that failed
  std::uint64_t self_ = 0;
  std::uint64_t state_ = 0;  // State
  NearPlace near_;
  Running<LockTarget, Unlock<Table>, UnlockDeferred<Table>, LockAll, UnlockAll> running_;
  Running<epochs::LoseGlobalLock<Memory>> losing_;
};

// "X0 S1": lock exclusive at rank 0, unlock; shared at rank 1. "X0(X1)": within the lock at 0 one at 1. "D0":
// exclusive, deferred ("d0": shared). "L": lock_all.
inline TableScript parse_table_script(const std::string& text) {
  using What = TableAction::What;
  TableScript script;
  std::vector<int> open;
  const auto close = [&] {
    TableAction action = script[static_cast<std::size_t>(open.back())];
    action.lock = open.back();
    action.what = action.what == What::kLockAll ? What::kUnlockAll : What::kUnlock;
    open.pop_back();
    script.push_back(action);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ')') close();
    if (std::string("XSDdL").find(c) == std::string::npos) continue;
    TableAction action{What::kLock, LockType::kExclusive, 0, -1};
    if (c == 'S' || c == 'd' || c == 'L') action.type = LockType::kShared;
    if (c == 'D' || c == 'd') action.what = What::kDefer;
    if (c == 'L') action.what = What::kLockAll;
    if (c != 'L') action.target = text[++i] - '0';
    open.push_back(static_cast<int>(script.size()));
    script.push_back(action);
    if (i + 1 == text.size() || text[i + 1] != '(') close();
  }
  return script;
}

struct LockTableCase {
  std::vector<std::string> scripts;  // one per actor
  std::vector<int> ranks = {};       // of the actors; none: actor i is rank i
  int home = RightTable::kNoGlobalLock;
  int job = 2;             // ranks of the window
  int exposed = -1;        // a rank that is exposed by a post
  std::uint32_t near = 0;  // hand-offs in a row of the near lock that all targets share
  TableMistakes mistakes = {};
  bool dead = false;  // rank 2 has died before, and may have had a part in every lock
};

template <class Table = RightTable>
Report explore_lock_table(const LockTableCase& each, const Options& options,
                          typename LockTableProgram<Table>::Seen* seen = nullptr) {
  typename LockTableProgram<Table>::Seen unasked;
  std::vector<TableScript> scripts;
  for (const std::string& text : each.scripts) scripts.push_back(parse_table_script(text));
  std::vector<LockTableProgram<Table>> programs;
  for (const TableScript& script : scripts) {
    programs.emplace_back(&script, &each.mistakes, seen != nullptr ? seen : &unasked, NearPlace{kNearHome, each.near});
  }
  auto explorer = std::make_unique<Explorer<LockTableProgram<Table>>>(programs, options, each.ranks);
  for (int rank = 0; rank < kRanks; ++rank) explorer->shared().tables[rank] = Table(rank, each.job, each.home);
  if (each.dead) explorer->memory_state().dead = 4;
  if (each.dead) explorer->shared().of_dead = ~0U;
  if (each.exposed >= 0) explorer->memory_state().store(each.exposed, ControlBlock::kLock, LockWord::kExposed);
  return explorer->run();
}

}  // namespace farside::explore
