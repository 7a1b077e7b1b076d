// SPDX-License-Identifier: BSD-3-Clause
// Models of queueing locks from the literature, for the simulation (protocols.hpp has what a Protocol is). Each is
// simplified in its favour where it is simplified. A rank holds one lock at a time, so it needs one entry of a queue.
// None has a lock_all: it would lock every rank.
//
//   McsLock    a list of waiters by swap; the hand-off is one latency, and needs nothing of the target
//   RmaRwLock  counters of readers per node, and lists of writers per node and of nodes
//   DecLock    an array of waiters at the target by fetch-add; the releasing rank reads it and notifies the next one
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tools/simulate/network.hpp"
#include "tools/simulate/protocols.hpp"

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
        memory_.post_write(rank(operation_.value()), kNext, id(self_));
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
        memory_.post_write(rank(next), kFlag, 1);
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
            memory_.post_add(home_, words_.arrive(), -std::uint64_t{1});
            wait();
            break;
          case Step::kTailRead:
            if (operation_.value() == 0) {
              memory_.swap(operation_, home_, words_.depart(), 0);
              step_ = Step::kSetBack;
            } else {
              memory_.post_add(home_, words_.arrive(), -std::uint64_t{1});
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
            memory_.post_write(McsLock::rank(operation_.value()), kNext, McsLock::id(self_));
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
            memory_.post_write(McsLock::rank(operation_.value()), words_.next(), McsLock::id(leader_));
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
            memory_.post_write(McsLock::rank(memory_.own(kNext)), kFlag, kHeld);
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
              memory_.post_add(each.home, words_.arrive(), -kWriteMode - each.operation.value());
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
            memory_.post_write(McsLock::rank(memory_.own(kNext)), kFlag, kReadMode);
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
      memory_.post_write(McsLock::rank(memory_.load(leader_, words_.next())), words_.status(), status_);
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

// Cooperative queue-notify locking of DecLock (Zhang and others: DecLock: A Case of Decoupled Locking for Disaggregated
// Memory, arXiv 2505.17641).
//
//   header, at the target        | ticket 30 | readers present 17 | writers present 17 |
//   queue[], at the target       | ticket + 1, 31 | writer 1 | rank 32 |
//   flag, at each rank           | 1: it holds the lock |
//
// A rank comes by one fetch-add on the header: it takes a ticket and counts itself. A reader holds the lock if no
// writer is present, a writer if nobody is. All others, and readers that hold it (since those that leave must find the
// next writer), write themselves into the queue. A rank leaves by one fetch-add, and if it had waited it reads the
// queue behind its ticket at the same time; what this read has not found it reads again. A writer notifies the next
// writer, or all readers before it; the last reader before the next writer, as the header and the queue show, notifies
// that writer. From a writer to the next one pass three latencies: leave and read, both answers, notification.
//
// Assumed, as the paper is about nodes of memory and this is about ranks: an entry for each rank at least, a read of
// kPiece of them costs as much as one of a word, the layout of the words, that readers write themselves into the queue
// even if they hold the lock, and that a notification is a write to the waiter, not a message that its CPU handles.
// Left out: queues that are too short and their reset, failures and timeouts, and hand-offs within a node.
struct DecLock : WithoutGlobalLock {
  static constexpr std::uint64_t kPiece = 64;

  static std::uint64_t bytes_per_rank(const Network& network) { return 16 + 8 * entries(network); }
  static constexpr std::uint64_t kBytesPerWaiter = 0;
  static std::uint32_t uncontended(LockType type, const Network&) { return type == LockType::kExclusive ? 2 : 3; }
  static bool comes(const Operation& operation) { return operation.word == kHeader; }
  void handle(Network&, Operation&) {}

  static constexpr std::uint32_t kHeader = ControlBlock::kLock;
  static constexpr std::uint32_t kFlag = ControlBlock::wake_word(0);
  static constexpr std::uint32_t kOwn = ControlBlock::kDrain;  // the holder's ticket, and whether it waited
  static constexpr std::uint64_t kWriter = 1;
  static constexpr std::uint64_t kReader = 1ULL << 17;
  static constexpr std::uint64_t kTicket = 1ULL << 34;

  static std::uint64_t one(LockType type) { return type == LockType::kExclusive ? kWriter : kReader; }
  static std::uint64_t writers(std::uint64_t header) { return header % kReader; }
  static std::uint64_t present(std::uint64_t header) { return writers(header) + header % kTicket / kReader; }
  static std::uint64_t ticket(std::uint64_t header) { return header / kTicket; }

  static constexpr std::uint64_t kExclusive = 1ULL << 32;
  static constexpr std::uint64_t kEntryTicket = 1ULL << 33;
  // No waiter needs more than `ranks`. But others may come and go many times while a reader that holds the lock still
  // writes its entry, which must not fall upon a later one.
  static std::uint64_t entries(const Network& network) {
    return static_cast<std::uint64_t>(std::max(network.ranks(), 1024));
  }
  static std::uint64_t slot(const Network& network, std::uint64_t ticket) { return ticket % entries(network); }
  static std::uint32_t word(std::uint64_t slot) { return ControlBlock::kPosted + 8 * static_cast<std::uint32_t>(slot); }

  class Acquire {
   public:
    Acquire(Memory& memory, int self, int target, LockType type)
        : memory_(memory), self_(self), target_(target), type_(type) {
      memory_.fetch_add(operation_, target_, kHeader, kTicket + one(type_));
    }
    bool advance() {
      if (!operation_.done()) return false;
      if (!came_) {
        came_ = true;
        const std::uint64_t before = operation_.value();
        waited_ = type_ == LockType::kExclusive ? present(before) > 0 : writers(before) > 0;
        memory_.store(self_, kOwn, 2 * ticket(before) + (waited_ ? 1 : 0));
        if (waited_ || type_ == LockType::kShared) {
          memory_.post_write(target_, word(slot(memory_.network(), ticket(before))),
                             (ticket(before) + 1) * kEntryTicket + (type_ == LockType::kExclusive ? kExclusive : 0) +
                                 static_cast<std::uint64_t>(self_));
        }
      }
      if (!waited_) return true;
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
    int target_;
    LockType type_;
    bool came_ = false;
    bool waited_ = false;
  };

  class Release {
   public:
    Release(Memory& memory, int target, LockType type, LockToken)
        : memory_(memory), ticket_(memory.own(kOwn) / 2), target_(target), exclusive_(type == LockType::kExclusive) {
      memory_.fetch_add(operation_, target_, kHeader, -one(type));
      if (memory_.own(kOwn) % 2 == 1) read(ticket_ + 1);
    }
    bool advance() {
      while (operation_.done() && piece_.done()) {
        if (!left_) {
          if (!leave(operation_.value())) return true;
          left_ = true;
        }
        if (at_ == end_) return true;
        if (at_ < first_ || at_ >= first_ + size_) {
          read(at_);
          continue;
        }
        const std::uint64_t entry = entries_[at_ - first_];
        if (entry / kEntryTicket < at_ + 1) {  // not written yet
          read(at_);
          continue;
        }
        // A reader before this one, whose entry is taken again.
        if (entry / kEntryTicket > at_ + 1) return true;
        const bool of_writer = entry % kEntryTicket >= kExclusive;
        if (exclusive_ ? of_writer && at_ > ticket_ + 1 : !of_writer) return true;
        memory_.post_write(static_cast<int>(entry % kExclusive), kFlag, 1);
        if (of_writer) return true;
        ++at_;
      }
      return false;
    }

   private:
    // `before`: the header. False: there is nobody to notify.
    bool leave(std::uint64_t before) {
      end_ = ticket(before);
      if (exclusive_) {
        at_ = ticket_ + 1;
        return true;
      }
      // So many have left, in any order. What is not behind this reader is of its own group.
      at_ = end_ - (present(before) - 1);
      return writers(before) > 0 && at_ > ticket_;
    }
    void read(std::uint64_t first) {
      const std::uint64_t begin = slot(memory_.network(), first);
      first_ = first;
      size_ = std::min(kPiece, entries(memory_.network()) - begin);
      memory_.read(piece_, target_, word(begin), std::span(entries_).first(size_));
    }

    Memory& memory_;
    Operation operation_;
    Operation piece_;
    std::array<std::uint64_t, kPiece> entries_{};
    std::uint64_t ticket_;
    std::uint64_t at_ = 0;   // the entry to look at
    std::uint64_t end_ = 0;  // tickets taken when this rank left
    std::uint64_t first_ = 0;
    std::uint64_t size_ = 0;  // of the piece that was read
    int target_;
    bool exclusive_;
    bool left_ = false;
  };
};

}  // namespace farside::simulate
