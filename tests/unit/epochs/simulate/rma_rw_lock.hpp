// SPDX-License-Identifier: BSD-3-Clause
// Counters of readers per node, and lists of writers per node and of nodes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/unit/epochs/simulate/mcs_lock.hpp"
#include "tests/unit/epochs/simulate/network.hpp"
#include "tests/unit/epochs/simulate/protocols.hpp"

namespace farside::simulate {

// RMA-RW (Schmid, Besta, Hoefler: High-Performance Distributed RMA Locks, HPDC'16), with two levels of the machine.
//
//   counter of a node, or of several that have kPerCounter ranks (T_DC), at the leader of the first
//                                       | arrive: readers that came, + kWriteMode | depart: readers that left |
//   list of a node's writers            at the leader  | tail |      at each rank  | next | flag |
//   list of nodes                       at the target  | tail |      at each leader  | next | status | passed |
//
// A reader counts itself in arrive, and out by depart. It holds the lock if arrive was less than kMostReaders (T_R) and
// not in write mode; else it takes its count back and waits. (Without a writer in the list of nodes it sets the counter
// back.) A writer queues among those of its node, the first of them for its node among the nodes, and the first of
// these puts all counters into write mode and waits until arrive is equal to depart in each. The lock goes to a writer
// of the same node up to kMostOfNode times (T_L), else to the next node, and after kMostNodes of them or without a next
// one all counters are set back, so that readers come in (kMostWriters: T_W).
//
// Left out: levels between node and machine, and tuning of the thresholds. In its favour: all counters are changed at
// once, and no origin's NIC is congested; what is added to set them back is not waited for; the ranks of a word's node
// spin on it by loads that cost nothing, and other readers read it with pauses, as those of PollingLock. A counter is
// set back by swap, where the original reads and subtracts. If no two ranks share a node, there are no lists of a
// node's writers, and each counter is that of kPerCounter nodes.
struct RmaRwLock : WithoutGlobalLock {
  static constexpr int kPerCounter = 64;
  static constexpr std::uint64_t kMostReaders = 1024;
  static constexpr std::uint64_t kMostOfNode = 64;
  static constexpr std::uint64_t kMostNodes = 16;
  static constexpr std::uint64_t kMostWriters = kMostOfNode * kMostNodes;
  static constexpr std::uint64_t kMostBackOff = 64;
  static constexpr std::uint64_t kWriteMode = 1ULL << 40;

  // There is a lock of each rank, and so of each rank all counters and entries of nodes.
  static std::uint64_t bytes_per_rank(const Network& network) {
    const auto ranks = static_cast<std::uint64_t>(network.ranks());
    const auto per_node = static_cast<std::uint64_t>(network.settings().ranks_per_node);
    return 24 + ranks * 32 / per_node + ranks * 16 / static_cast<std::uint64_t>(span(network));
  }
  static constexpr std::uint64_t kBytesPerWaiter = 0;
  static std::uint32_t uncontended(LockType type, const Network& network) {
    if (type == LockType::kShared) return 2;
    const int counters = (network.ranks() + span(network) - 1) / span(network);
    return static_cast<std::uint32_t>(4 * counters + (has_nodes(network) ? 4 : 2));
  }
  static bool comes(const Operation& operation) {
    return operation.kind == Operation::Kind::kSwap ||
           (operation.kind == Operation::Kind::kFetchAdd && operation.operand == 1);
  }
  void handle(Network&, Operation&) {}

  static constexpr std::uint32_t kTail = ControlBlock::kLock;
  static constexpr std::uint32_t kFlag = McsLock::kFlag;  // 1: the node does not hold the lock; 2: holds it
  static constexpr std::uint32_t kNext = McsLock::kNext;
  enum Status : std::uint64_t { kReadMode = 1, kHeld = 2 };  // and more than kHeld: so many hand-offs between nodes

  static constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  static bool has_nodes(const Network& network) { return network.settings().ranks_per_node > 1; }
  static std::uint64_t most_nodes(const Network& network) { return has_nodes(network) ? kMostNodes : kMostWriters; }
  // Ranks per counter.
  static int span(const Network& network) {
    const int per_node = network.settings().ranks_per_node;
    return per_node * std::max(1, kPerCounter / per_node);
  }

  // The words of a target's lock, at any rank.
  struct Words {
    explicit Words(int target) : first(ControlBlock::kPosted + 64 * static_cast<std::uint32_t>(target)) {}
    std::uint32_t arrive() const { return first; }
    std::uint32_t depart() const { return first + 8; }
    std::uint32_t node_tail() const { return first + 16; }
    std::uint32_t next() const { return first + 24; }
    std::uint32_t status() const { return first + 32; }
    std::uint32_t passed() const { return first + 40; }
    std::uint32_t first;
  };
  struct Counter {
    Operation operation;
    std::array<std::uint64_t, 2> values{};  // arrive, depart
    int home = 0;
  };
  // The counters, each with an operation in flight.
  class Counters {
   public:
    template <class Issue>
    void issue(const Network& network, Issue&& issue) {
      all_ = std::vector<Counter>(static_cast<std::size_t>((network.ranks() + span(network) - 1) / span(network)));
      done_ = 0;
      for (std::size_t i = 0; i < all_.size(); ++i) {
        all_[i].home = static_cast<int>(i) * span(network);
        issue(all_[i]);
      }
    }
    bool done() {
      while (done_ < all_.size() && all_[done_].operation.done()) ++done_;
      return done_ == all_.size();
    }
    // Issues again for those for which `issue` does.
    template <class Issue>
    void again(Issue&& issue) {
      done_ = 0;
      for (Counter& each : all_) issue(each);
    }
    void clear() { all_ = {}; }

   private:
    std::vector<Counter> all_;
    std::size_t done_ = 0;
  };

  class Acquire {
   public:
    Acquire(Memory& memory, int self, int target, LockType type)
        : memory_(memory),
          words_(target),
          self_(self),
          target_(target),
          leader_(memory.network().leader(self)),
          home_(self - self % span(memory.network())),
          step_(type == LockType::kShared     ? Step::kArrive
                : has_nodes(memory.network()) ? Step::kEnterNode
                                              : Step::kEnter) {}

    bool advance() {
      while (operation_.done()) {
        switch (step_) {
          case Step::kArrive:
            memory_.fetch_add(operation_, home_, words_.arrive(), 1);
            step_ = Step::kArrived;
            break;
          case Step::kArrived:
            if (operation_.value() < kMostReaders) return true;
            waited_ = true;
            if (operation_.value() < kWriteMode) {
              memory_.read(operation_, target_, kTail);
              step_ = Step::kTailRead;
              break;
            }
            memory_.add_unawaited(home_, words_.arrive(), -std::uint64_t{1});
            wait();
            break;
          case Step::kTailRead:
            if (operation_.value() == 0) {
              memory_.swap(operation_, home_, words_.depart(), 0);
              step_ = Step::kSetBack;
            } else {
              memory_.add_unawaited(home_, words_.arrive(), -std::uint64_t{1});
              back_off(Step::kArrive);
            }
            break;
          case Step::kSetBack: {
            const std::uint64_t departed = operation_.value();
            memory_.fetch_add(operation_, home_, words_.arrive(), -departed - 1);
            step_ = Step::kArrive;
            break;
          }
          case Step::kLook:
            memory_.read(operation_, home_, words_.arrive());
            step_ = Step::kLooked;
            break;
          case Step::kLooked:
            if (operation_.value() < kWriteMode) {
              step_ = Step::kArrive;
            } else {
              wait();
            }
            break;

          case Step::kEnterNode:
            memory_.store(self_, kNext, 0);
            memory_.swap(operation_, leader_, words_.node_tail(), McsLock::id(self_));
            step_ = Step::kEnteredNode;
            break;
          case Step::kEnteredNode:
            step_ = Step::kEnter;
            if (operation_.value() == 0) break;
            waited_ = true;
            memory_.write_unawaited(McsLock::rank(operation_.value()), kNext, McsLock::id(self_));
            step_ = Step::kInNode;
            break;
          case Step::kInNode: {
            const std::uint64_t flag = memory_.own(kFlag);
            if (flag == 0) return false;
            memory_.store(self_, kFlag, 0);
            if (flag == kHeld) return true;
            step_ = Step::kEnter;
            break;
          }
          case Step::kEnter:
            for (const std::uint32_t word : {words_.next(), words_.status(), words_.passed()})
              memory_.store(leader_, word, 0);
            memory_.swap(operation_, target_, kTail, McsLock::id(leader_));
            step_ = Step::kEntered;
            break;
          case Step::kEntered:
            step_ = Step::kClose;
            if (operation_.value() == 0) break;
            waited_ = true;
            memory_.write_unawaited(McsLock::rank(operation_.value()), words_.next(), McsLock::id(leader_));
            memory_.await(operation_, leader_, words_.status(), 1, kAny);
            step_ = Step::kPassed;
            break;
          case Step::kPassed:
            if (operation_.value() != kReadMode) return true;
            step_ = Step::kClose;
            break;
          case Step::kClose:
            counters_.issue(memory_.network(), [&](Counter& each) {
              memory_.fetch_add(each.operation, each.home, words_.arrive(), kWriteMode);
            });
            step_ = Step::kClosed;
            break;
          case Step::kClosed:
            if (!counters_.done()) return false;
            counters_.again([&](Counter& each) { read(each); });
            step_ = Step::kDrain;
            break;
          case Step::kDrain: {
            if (!counters_.done()) return false;
            bool drained = true;
            counters_.again([&](Counter& each) {
              if (each.values[0] == kWriteMode + each.values[1]) return;
              drained = false;
              read(each);
            });
            waited_ = waited_ || !drained;
            if (!drained) return false;
            counters_.clear();
            memory_.store(leader_, words_.status(), kHeld);
            return true;
          }
        }
      }
      return false;
    }
    LockToken token() const { return {}; }
    bool waited() const { return waited_; }

   private:
    enum class Step : std::uint8_t {
      kArrive,
      kArrived,
      kTailRead,
      kSetBack,
      kLook,
      kLooked,
      kEnterNode,
      kEnteredNode,
      kInNode,
      kEnter,
      kEntered,
      kPassed,
      kClose,
      kClosed,
      kDrain
    };
    // Waits while the counter is in write mode.
    void wait() {
      if (memory_.network().on_one_node(self_, home_)) {
        memory_.await(operation_, home_, words_.arrive(), 0, kWriteMode);
        step_ = Step::kArrive;
      } else {
        back_off(Step::kLook);
      }
    }
    void back_off(Step then) {
      memory_.back_off(operation_, back_off_);
      back_off_ = std::min(2 * back_off_, kMostBackOff);
      step_ = then;
    }
    void read(Counter& counter) { memory_.read(counter.operation, counter.home, words_.arrive(), counter.values); }

    Memory& memory_;
    Operation operation_;
    Counters counters_;
    Words words_;
    std::uint64_t back_off_ = 1;
    int self_;
    int target_;
    int leader_;  // of the node
    int home_;    // of the counter
    Step step_;
    bool waited_ = false;
  };

  class Release {
   public:
    Release(Memory& memory, int target, LockType type, LockToken)
        : memory_(memory), words_(target), target_(target), leader_(memory.network().leader(memory.self())) {
      if (type == LockType::kExclusive) return;
      const int self = memory_.self();
      memory_.fetch_add(operation_, self - self % span(memory_.network()), words_.depart(), 1);
      step_ = Step::kDone;
    }
    bool advance() {
      while (operation_.done()) {
        switch (step_) {
          case Step::kPassInNode: {
            const std::uint64_t passed = memory_.load(leader_, words_.passed()) + 1;
            if (!has_nodes(memory_.network()) || memory_.own(kNext) == 0 || passed > kMostOfNode) {
              step_ = Step::kPass;
              break;
            }
            memory_.store(leader_, words_.passed(), passed);
            memory_.write_unawaited(McsLock::rank(memory_.own(kNext)), kFlag, kHeld);
            return true;
          }
          case Step::kPass:
            status_ = memory_.load(leader_, words_.status()) + 1;
            if (status_ < kHeld + most_nodes(memory_.network()) && memory_.load(leader_, words_.next()) != 0) {
              pass();
              break;
            }
            status_ = kReadMode;
            counters_.issue(memory_.network(),
                            [&](Counter& each) { memory_.swap(each.operation, each.home, words_.depart(), 0); });
            step_ = Step::kOpen;
            break;
          case Step::kOpen:
            if (!counters_.done()) return false;
            counters_.again([&](Counter& each) {
              memory_.add_unawaited(each.home, words_.arrive(), -kWriteMode - each.operation.value());
            });
            counters_.clear();
            if (memory_.load(leader_, words_.next()) != 0) {
              pass();
              break;
            }
            memory_.compare_and_swap(operation_, target_, kTail, McsLock::id(leader_), 0);
            step_ = Step::kTried;
            break;
          case Step::kTried:
            if (operation_.value() == McsLock::id(leader_)) {
              step_ = Step::kLeaveNode;
              break;
            }
            memory_.await(operation_, leader_, words_.next(), 1, kAny);
            step_ = Step::kLinked;
            break;
          case Step::kLinked: pass(); break;

          case Step::kLeaveNode:
            if (!has_nodes(memory_.network())) return true;
            step_ = Step::kLeave;
            if (memory_.own(kNext) != 0) break;
            memory_.compare_and_swap(operation_, leader_, words_.node_tail(), McsLock::id(memory_.self()), 0);
            step_ = Step::kTriedNode;
            break;
          case Step::kTriedNode:
            if (operation_.value() == McsLock::id(memory_.self())) return true;
            step_ = Step::kLeave;
            break;
          case Step::kLeave:
            if (memory_.own(kNext) == 0) return false;
            memory_.write_unawaited(McsLock::rank(memory_.own(kNext)), kFlag, kReadMode);
            return true;
          case Step::kDone: return true;
        }
      }
      return false;
    }

   private:
    enum class Step : std::uint8_t {
      kPassInNode,
      kPass,
      kOpen,
      kTried,
      kLinked,
      kLeaveNode,
      kTriedNode,
      kLeave,
      kDone
    };
    // Hands the lock on to the next node.
    void pass() {
      memory_.write_unawaited(McsLock::rank(memory_.load(leader_, words_.next())), words_.status(), status_);
      step_ = Step::kLeaveNode;
    }

    Memory& memory_;
    Operation operation_;
    Counters counters_;
    Words words_;
    std::uint64_t status_ = 0;
    int target_;
    int leader_;
    Step step_ = Step::kPassInNode;
  };
};

}  // namespace farside::simulate
