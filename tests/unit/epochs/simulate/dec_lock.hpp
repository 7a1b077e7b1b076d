// SPDX-License-Identifier: BSD-3-Clause
// An array of waiters at the target by fetch-add: the releasing rank reads it and notifies the next one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tests/unit/epochs/simulate/network.hpp"
#include "tests/unit/epochs/simulate/protocols.hpp"

namespace farside::simulate {

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
          memory_.write_unawaited(target_, word(slot(memory_.network(), ticket(before))),
                                  (ticket(before) + 1) * kEntryTicket +
                                      (type_ == LockType::kExclusive ? kExclusive : 0) +
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
        memory_.write_unawaited(static_cast<int>(entry % kExclusive), kFlag, 1);
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
