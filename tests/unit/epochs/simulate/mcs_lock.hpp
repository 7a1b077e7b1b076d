// SPDX-License-Identifier: BSD-3-Clause
// A list of waiters by swap: the hand-off takes one latency, and nothing of the target.
#pragma once

#include <cstdint>

#include "tests/unit/epochs/simulate/network.hpp"
#include "tests/unit/epochs/simulate/protocols.hpp"

namespace farside::simulate {

// The list lock of Mellor-Crummey and Scott (Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors,
// TOCS 1991) over remote memory, as MPI-3 programs write it. All locks are exclusive, those of readers as well.
//
//   tail, at the target   | rank + 1 of the last waiter |
//   next, at each rank    | rank + 1 of the one behind it |      flag, at each rank    | 1: it holds the lock |
//
// A rank swaps itself into the tail, and if another one was there, links itself behind it and waits for its own flag.
// The releasing rank sets the flag of the next one, or takes itself out of the tail by compare-and-swap. If that fails,
// it waits for its link. The swap is one operation of libfabric (FI_ATOMIC_WRITE), but plain verbs have only fetch-add
// and compare-and-swap, by which a swap is a loop whose length grows with the contenders: not modelled.
struct McsLock : WithoutGlobalLock {
  static std::uint64_t bytes_per_rank(const Network&) { return 24; }
  static constexpr std::uint64_t kBytesPerWaiter = 0;
  static std::uint32_t uncontended(LockType, const Network&) { return 2; }
  static bool comes(const Operation& operation) { return operation.kind == Operation::Kind::kSwap; }
  void handle(Network&, Operation&) {}

  static constexpr std::uint32_t kTail = ControlBlock::kLock;
  static constexpr std::uint32_t kFlag = ControlBlock::wake_word(0);
  static constexpr std::uint32_t kNext = ControlBlock::wake_word(1);
  static std::uint64_t id(int rank) { return static_cast<std::uint64_t>(rank) + 1; }
  static int rank(std::uint64_t id) { return static_cast<int>(id) - 1; }

  class Acquire {
   public:
    Acquire(Memory& memory, int self, int target, LockType) : memory_(memory), self_(self) {
      memory_.store(self_, kNext, 0);
      memory_.swap(operation_, target, kTail, id(self_));
    }
    bool advance() {
      if (!operation_.done()) return false;
      if (operation_.value() == 0) return true;
      if (!waited_) {
        waited_ = true;
        memory_.write_unawaited(rank(operation_.value()), kNext, id(self_));
      }
      if (memory_.own(kFlag) == 0) return false;
      memory_.store(self_, kFlag, 0);
      return true;
    }
    LockToken token() const { return {}; }
    bool waited() const { return waited_; }

   private:
    Memory& memory_;
    Operation operation_;
    int self_;
    bool waited_ = false;
  };

  class Release {
   public:
    Release(Memory& memory, int target, LockType, LockToken) : memory_(memory), target_(target) {}
    bool advance() {
      if (!operation_.done()) return false;
      if (const std::uint64_t next = memory_.own(kNext); next != 0) {
        memory_.write_unawaited(rank(next), kFlag, 1);
        return true;
      }
      if (tried_) return operation_.value() == id(memory_.self());
      tried_ = true;
      memory_.compare_and_swap(operation_, target_, kTail, id(memory_.self()), 0);
      return false;
    }

   private:
    Memory& memory_;
    Operation operation_;
    int target_;
    bool tried_ = false;
  };
};

}  // namespace farside::simulate
