// SPDX-License-Identifier: BSD-3-Clause
// The locks that the simulation compares: farside's own code, and models of others, here and in mcs_lock.hpp,
// rma_rw_lock.hpp and dec_lock.hpp. A model is simplified in its favour where it is simplified. There a rank holds one
// lock at a time, and so needs one entry of a queue. Each lock is a Protocol with
//
//   Acquire(memory, self, target, type), Release(memory, target, type, token)
//                                         with advance(), as in epochs/protocols/lock.hpp; target kAll: for a lock_all
//   kGlobalLock                           whether kAll is a lock of its own that exclusive locks acquire as well, by
//   AcquireBoth(memory, self, target)     which acquires both
//   at_global_lock(operation)             whether the operation belongs to the global lock, not to the target's lock
//   comes(operation)                      whether this operation of an acquisition may be the arrival in the queue
//   releases(operation)                   whether the operation withdraws the arrival, to arrive again
//   handle(network, message)              what the target's CPU does with a message
//   uncontended(type, network)            remote operations of an uncontended lock and unlock together. Where waiting
//                                         does not show in their number, Acquire::waited() tells
//   bytes_per_rank(network), kBytesPerWaiter
//                                         memory; the second is that of the queue at the target
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "tests/unit/epochs/simulate/network.hpp"

namespace farside::simulate {

using epochs::ControlBlock;
using epochs::LockToken;
using epochs::LockType;

inline constexpr int kAll = -1;
// The home rank of the word for all targets: farside's global lock, the global word of the polling lock.
inline constexpr int kHome = 0;

struct FarsideLock {
  static constexpr std::uint32_t kGlobalLockWakeIndex = 1;  // the wake word for waiting at the global lock

  struct AcquireFar : epochs::AcquireLock<Memory> {
    AcquireFar(Memory& memory, int self, int target, LockType type)
        : AcquireLock(memory, self, rank_of(target), type, target == kAll ? kGlobalLockWakeIndex : 0, of(target)) {}
  };
  struct ReleaseFar : epochs::ReleaseLock<Memory> {
    ReleaseFar(Memory& memory, int target, LockType type, LockToken token)
        : ReleaseLock(memory, rank_of(target), type, token, of(target)) {}
  };
  static int rank_of(int target) { return target == kAll ? kHome : target; }
  static epochs::LockOf of(int target) { return target == kAll ? epochs::LockOf::kGlobal : epochs::LockOf::kTarget; }
  static epochs::NearPlace near_place(const Memory& memory, int self, int target, LockType type) {
    const Network& network = memory.network();
    const NetworkSettings& settings = network.settings();
    if (settings.ranks_per_node == 1 || target == kAll || type == LockType::kShared) return {};
    if (network.on_one_node(self, target)) return {};
    return {network.leader(self) + target % settings.ranks_per_node,
            static_cast<std::uint32_t>(settings.near_hand_offs)};
  }
  // As epochs::LockTarget and UnlockTarget, without the global lock.
  class Acquire {
   public:
    Acquire(Memory& memory, int self, int target, LockType type)
        : memory_(memory), self_(self), target_(target), type_(type) {
      const epochs::NearPlace place = near_place(memory, self, target, type);
      memory_.store(self_, kNear, 0);
      if (place.most > 0 && memory.own(ControlBlock::kNearNext) == 0) {
        near_.emplace(memory, self, target, place.home);
      } else {
        far_.emplace(memory, self, target, type);
      }
    }
    bool advance() {
      if (!far_) {
        if (!near_->advance()) return false;
        memory_.store(self_, kNear, near_->near());
        if (near_->holds()) return true;
        far_.emplace(memory_, self_, target_, type_);
      }
      return far_->advance();
    }
    LockToken token() const { return far_ ? far_->token() : near_->token(); }

   private:
    Memory& memory_;
    std::optional<epochs::AcquireNear<Memory>> near_;
    std::optional<AcquireFar> far_;
    int self_;
    int target_;
    LockType type_;
  };
  class Release {
   public:
    Release(Memory& memory, int target, LockType type, LockToken token) {
      const int self = memory.self();
      const auto near = static_cast<std::uint32_t>(memory.own(kNear));
      const epochs::NearPlace place = near_place(memory, self, target, type);
      if (may_pass_near(memory, near, place)) {
        pass_near(memory, near, token, LockToken());
        return;
      }
      far_.emplace(memory, target, type, token);
      if (near != 0) leave_.emplace(memory, self, target, place.home);
    }
    bool advance() {
      const bool left = !leave_ || leave_->advance();
      return (!far_ || far_->advance()) && left;
    }

   private:
    std::optional<ReleaseFar> far_;
    std::optional<epochs::LeaveNear<Memory>> leave_;
  };
  static constexpr std::uint32_t kNear = ControlBlock::kHeld;  // HeldLock::near
  // Whether the operation stays within the node.
  static bool in_node(const Operation& operation) {
    return operation.word >= ControlBlock::kNear && operation.word <= ControlBlock::kNearToken;
  }
  class AcquireBoth : public epochs::AcquireLocks<Memory> {
   public:
    AcquireBoth(Memory& memory, int self, int target)
        : epochs::AcquireLocks<Memory>(memory, self, target, kHome, kGlobalLockWakeIndex, 0) {}
  };
  static constexpr bool kGlobalLock = true;
  static bool at_global_lock(const Operation& operation) {
    return operation.word >= ControlBlock::kGlobalLock ||
           operation.word == ControlBlock::wake_word(kGlobalLockWakeIndex);
  }
  static bool comes(const Operation& operation) {
    if (operation.word == ControlBlock::kNear) return operation.result == operation.compare && operation.operand != 0;
    return operation.word == ControlBlock::kLock || operation.word == ControlBlock::kGlobalLock;
  }
  static std::uint64_t places_in_front(const Operation& operation) {
    using epochs::LockWord;
    const bool arrives = operation.kind == Operation::Kind::kFetchAdd && operation.word == ControlBlock::kLock;
    return arrives ? LockWord::readers(operation.result) + LockWord::writers(operation.result) : 0;
  }
  // Each place stands for 1 + k locks. A rank of a node waits with the present place of its node or with later ones,
  // behind all that have come meanwhile.
  static std::uint64_t most_overtaken(const Network& network, std::uint64_t in_front) {
    const NetworkSettings& settings = network.settings();
    if (settings.ranks_per_node == 1 || settings.near_hand_offs == 0) return 0;
    const auto locks_per_place = static_cast<std::uint64_t>(settings.near_hand_offs) + 1;
    const auto places = (static_cast<std::uint64_t>(settings.ranks_per_node) - 1) / locks_per_place + 1;
    return places * locks_per_place * in_front;
  }
  static bool releases(const Operation& operation) {
    using epochs::LockWord, epochs::WakeValue;
    if (operation.kind == Operation::Kind::kWrite) return WakeValue::how(operation.operand) == WakeValue::kOwed;
    return operation.kind == Operation::Kind::kFetchAdd && operation.word == ControlBlock::kLock &&
           (operation.operand == LockWord::depart(LockType::kExclusive) ||
            operation.operand == LockWord::depart(LockType::kExclusive, 2));
  }
  static std::uint64_t bytes_per_rank(const Network&) {
    return 8 * (2 + ControlBlock::kRingSlots + ControlBlock::kWakeWords + 3 + ControlBlock::kRingSlots);
  }
  static constexpr std::uint64_t kBytesPerWaiter = 0;
  static std::uint32_t uncontended(LockType, const Network&) { return 2; }
  void handle(Network&, Operation&) {}
};

struct WithoutGlobalLock {
  static constexpr bool kGlobalLock = false;
  struct AcquireBoth {
    AcquireBoth(Memory&, int, int) {}
    bool advance() const { return true; }
    LockToken token() const { return {}; }
    LockToken global_lock_token() const { return {}; }
  };
  static bool at_global_lock(const Operation&) { return false; }
  static bool comes(const Operation&) { return true; }
  static bool releases(const Operation&) { return false; }
};

// The two-level lock of foMPI (Gerstenberger, Besta, Hoefler: Enabling Highly-Scalable Remote Memory Access
// Programming with MPI-3 One Sided, SC13, section 2.3) and, except for details, of osc/rdma.
//
//   global, at rank 0     | lock_alls 32 | exclusive locks, held or tried, anywhere 32 |
//   local, at the target  | readers 63 | writer 1 |
//
// An exclusive lock counts itself in global, which must show no lock_all, and then changes local from 0 to 1 by
// compare-and-swap. If either fails, it takes the count back and begins again. A shared lock counts itself in local
// and reads until the writer is gone; a lock_all does the same in global. The originals retry at once; here all back
// off exponentially up to kMostBackOff round trips, which reduces their operations.
struct PollingLock : WithoutGlobalLock {
  static std::uint64_t bytes_per_rank(const Network&) { return 16; }
  static constexpr std::uint64_t kBytesPerWaiter = 0;
  static std::uint32_t uncontended(LockType type, const Network&) { return type == LockType::kExclusive ? 4 : 2; }
  void handle(Network&, Operation&) {}

  static constexpr std::uint32_t kGlobal = ControlBlock::kCompleted;
  static constexpr std::uint32_t kLocal = ControlBlock::kLock;
  static constexpr std::uint64_t kLockAll = 1ULL << 32;
  static constexpr std::uint64_t kReader = 2;
  static constexpr std::uint64_t kWriter = 1;
  static constexpr std::uint64_t kMostBackOff = 64;

  class Acquire {
   public:
    Acquire(Memory& memory, int, int target, LockType type)
        : memory_(memory),
          target_(target == kAll ? kHome : target),
          word_(target == kAll ? kGlobal : kLocal),
          reader_(target == kAll ? kLockAll : kReader),
          step_(target != kAll && type == LockType::kExclusive ? Step::kCount : Step::kShare) {}

    bool advance() {
      while (operation_.done()) {
        switch (step_) {
          case Step::kCount: count(1, Step::kCounted); break;
          case Step::kCounted:
            if (operation_.value() >= kLockAll) {
              count(-std::uint64_t{1}, Step::kTakenBack);
            } else {
              memory_.compare_and_swap(operation_, target_, kLocal, 0, kWriter);
              step_ = Step::kTried;
            }
            break;
          case Step::kTried:
            if (operation_.value() == 0) return true;
            count(-std::uint64_t{1}, Step::kTakenBack);
            break;
          case Step::kTakenBack: back_off(Step::kCount); break;

          case Step::kShare:
            memory_.fetch_add(operation_, target_, word_, reader_);
            step_ = Step::kShared;
            break;
          case Step::kShared:
            if (operation_.value() % reader_ == 0) return true;
            back_off(Step::kLook);
            break;
          case Step::kLook:
            memory_.read(operation_, target_, word_);
            step_ = Step::kShared;
            break;
        }
      }
      return false;
    }
    LockToken token() const { return {}; }

   private:
    enum class Step : std::uint8_t { kCount, kCounted, kTried, kTakenBack, kShare, kShared, kLook };
    void count(std::uint64_t value, Step then) {
      memory_.fetch_add(operation_, kHome, kGlobal, value);
      step_ = then;
    }
    void back_off(Step then) {
      memory_.back_off(operation_, back_off_);
      back_off_ = std::min(2 * back_off_, kMostBackOff);
      step_ = then;
    }

    Memory& memory_;
    Operation operation_;
    std::uint64_t back_off_ = 1;
    int target_;
    std::uint32_t word_;    // of a shared lock or a lock_all
    std::uint64_t reader_;  // what counts one there; below it are the writers
    Step step_;
  };

  class Release {
   public:
    Release(Memory& memory, int target, LockType type, LockToken)
        : memory_(memory), exclusive_(type == LockType::kExclusive) {
      if (target == kAll) {
        memory_.fetch_add(operation_, kHome, kGlobal, -kLockAll);
      } else {
        memory_.fetch_add(operation_, target, kLocal, exclusive_ ? -kWriter : -kReader);
      }
    }
    bool advance() {
      if (!operation_.done()) return false;
      if (!exclusive_) return true;
      exclusive_ = false;
      memory_.fetch_add(operation_, kHome, kGlobal, -std::uint64_t{1});
      return false;
    }

   private:
    Memory& memory_;
    Operation operation_;
    bool exclusive_;
  };
};

// A queue at the target, as in MPICH without hardware support (MPIDIG, ch4). A message asks for the lock, the
// target's CPU queues it and grants in order of arrival, consecutive readers together. A message releases the lock
// and is acknowledged.
struct QueueLock : WithoutGlobalLock {  // lock_all would be a message to every rank: not simulated
  static std::uint64_t bytes_per_rank(const Network&) { return 16; }
  static constexpr std::uint64_t kBytesPerWaiter = 32;
  static std::uint32_t uncontended(LockType, const Network&) { return 4; }

  enum What : std::uint64_t { kLockShared, kLockExclusive, kUnlock };

  class Acquire {
   public:
    Acquire(Memory& memory, int, int target, LockType type) {
      memory.message(operation_, target, type == LockType::kExclusive ? kLockExclusive : kLockShared);
    }
    bool advance() const { return operation_.done(); }
    LockToken token() const { return {}; }

   private:
    Operation operation_;
  };
  class Release {
   public:
    Release(Memory& memory, int target, LockType, LockToken) { memory.message(operation_, target, kUnlock); }
    bool advance() const { return operation_.done(); }

   private:
    Operation operation_;
  };

  void handle(Network& network, Operation& message) {
    Target& target = targets[message.target];
    if (message.operand == kUnlock) {
      --target.held;
      network.reply(message);
    } else {
      target.waiting.push_back(&message);
    }
    while (!target.waiting.empty()) {
      Operation& next = *target.waiting.front();
      if (target.held > 0 && (target.exclusive || next.operand == kLockExclusive)) break;
      target.waiting.pop_front();
      ++target.held;
      target.exclusive = next.operand == kLockExclusive;
      network.reply(next);
    }
  }

  struct Target {
    std::deque<Operation*> waiting;
    std::uint64_t held = 0;
    bool exclusive = false;
  };
  std::unordered_map<int, Target> targets;
};

}  // namespace farside::simulate
