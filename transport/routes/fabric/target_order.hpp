// SPDX-License-Identifier: BSD-3-Clause
// The order of the operations towards one target over the fabric, and which of them are coalesced.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "transport/base/result.hpp"
#include "transport/base/timing.hpp"
#include "transport/handler/operation_list.hpp"
#include "transport/routes/route.hpp"

namespace farside {

// Before a release an operation of more bytes than kMostCoalesced pays as well, since coalescing saves a round trip.
inline constexpr std::size_t kMostBeforeRelease = 4096;
static_assert(kMostBeforeRelease <= OperationList::kMostInOne);
// The sizes up to which a put and a get take less time as a message through a ring (fabric/message_ring.hpp) than by
// RDMA over TCP: 20.5 us in place of 21.9. Several larger puts in a row, which are not coalesced, are slower as
// messages. The provider copies replies of up to 96 bytes of data, which then need no completion.
inline constexpr std::size_t kMostPutInRing = kMostCoalesced;
inline constexpr std::size_t kMostGetInRing = 96;
static_assert(kMostPutInRing <= OperationList::kMostInOne && kMostGetInRing <= OperationList::kMostInOne);
// The most lists under way towards one target: lists hold copies.
inline constexpr std::uint32_t kMostLists = 64;

// Bursts: predicts whether the small operations of a process towards a target come in bursts: several in quick
// succession, then a flush. If so, the next burst travels in one message from its first operation on. Otherwise the
// first operation is issued at once, so that it is under way while the application computes.
//
// Not thread-safe: the mutex of the route guards it. Cost: at most three reads of the clock per burst.
class Bursts {
 public:
  using Clock = std::chrono::steady_clock;
  Bursts() = default;
  // `expected`: the last burst of this target has ended as one that is followed by others (expected()).
  explicit Bursts(bool expected) : expected_(expected) {}
  bool expected() const { return expected_; }

  enum class Next : std::uint8_t {
    kDefault,
    kCoalesce,  // the operation is coalesced even if nothing is under way
    kTooLate    // no burst after all: the delayed operation is issued now
  };
  // Counts a small operation, and says how to treat it.
  Next next_operation(Clock::time_point (*now)() = Clock::now) {
    ++operations_;
    if (operations_ == 1) {
      begun_ = now();
    } else if (operations_ == 2 && expected_ && now() - begun_ > Timing::kLongestBurst) {
      expected_ = false;
      return Next::kTooLate;
    }
    return expected_ ? Next::kCoalesce : Next::kDefault;
  }
  // Notes that the operation was coalesced.
  void joined() { joined_ = true; }
  // Notes a flush, which ends a burst.
  void flushed(Clock::time_point (*now)() = Clock::now) {
    if (operations_ == 0) return;
    expected_ = operations_ > 1 && (expected_ || joined_) && now() - begun_ <= Timing::kLongestBurst;
    operations_ = 0;
    joined_ = false;
  }

 private:
  bool expected_ = false, joined_ = false;
  std::uint64_t operations_ = 0;  // since the last flush
  Clock::time_point begun_;       // time of the first of them
};

// TargetOrder: the order in which the operations towards one target over the fabric are issued. It is a state machine
// that issues nothing itself: the route asks it about each operation, and keeps or issues the operation accordingly.
//
// Queued operations are small operations that the application has called and the route has not issued yet; they are
// issued as one message. Phases:
//
//   free              a small operation leaves at once if nothing is under way and no burst is expected
//   release expected  (not in the domain nic) every small operation is queued, to leave in one message with the release
//                     that ends the epoch
//   deferred          likewise, behind a lock that is not acquired yet: nothing may leave before acquire() is called
//
//     free  --expect_release-->  release expected  --flushed-->  free
//     free or release expected  --defer-->  deferred  --end_deferral-->  release expected
//
// An operation that is not queued must not overtake queued ones: offer() returns kIssueQueued until these are issued.
// Only puts and gets with a request may overtake them. While a thread issues the operations that it has taken, no other
// thread takes or issues operations.
//
// Not thread-safe: the mutex of the route guards it. Cost: no remote operation. Memory: 88 bytes, and a list and a
// QueuedOperation while operations are queued.

// A single operation is queued as it is, so that it can still travel alone; several are in a list.
class QueuedOperations {
 public:
  bool empty() const { return !alone_ && list == nullptr; }
  // The single operation, or null.
  const DataOperation* one() const { return alone_ ? &queued_->get() : nullptr; }
  // Returns false, and changes nothing, if the list has no room.
  bool add(const DataOperation& operation) {
    if (empty()) {
      if (queued_ == nullptr) queued_ = std::make_unique<QueuedOperation>();
      queued_->keep(operation);
      alone_ = true;
      return true;
    }
    make_list();
    return list->add(operation);
  }
  // Precondition: a single operation fits into a list (OperationList::kMostInOne).
  void make_list() {
    if (list == nullptr) {
      auto made = std::make_unique<OperationList>();
      if (alone_) made->add(queued_->get());
      list = std::move(made);
    }
    alone_ = false;
  }
  // Takes over the memory of operations that were issued.
  void reuse(QueuedOperations issued) {
    if (queued_ == nullptr) queued_ = std::move(issued.queued_);
  }

  std::unique_ptr<OperationList> list;

 private:
  bool alone_ = false;
  std::unique_ptr<QueuedOperation> queued_;
};

class TargetOrder {
 public:
  // The state of the operations under way towards the target.
  struct Traffic {
    bool idle;           // nothing
    bool requests_idle;  // nothing to its handler
    bool by_nic;         // the adapter takes each put and get at once, and needs no process at the target
  };
  enum class Next : std::uint8_t {
    kQueued,       // the operation is queued: nothing is to be done
    kIssueQueued,  // the queued operations must leave first; then offer the operation again
    kIssue         // the operation leaves by itself
  };
  // One operation on its way through offer(), which may be called several times for it.
  struct Offer {
    const DataOperation& operation;
    std::optional<Bursts::Next> burst{};
  };
  using Acquire = DeferredLocks::Acquire;

  explicit TargetOrder(bool burst_expected = false) : bursts_(burst_expected) {}

  Next offer(Offer& offer, const Traffic& traffic);
  // The same for a list of fragments. If it is queued, `list` is null afterwards.
  Next offer(std::unique_ptr<OperationList>& list, const Traffic& traffic);

  // Takes the queued operations, to be issued. Returns nothing if another thread issues now: the caller tries again.
  // `even_nothing`: the caller issues an operation of its own behind the queued ones, and excludes other threads even
  // if no operation is queued. If operations were taken or `even_nothing` is true, the caller calls sent() afterwards.
  std::optional<QueuedOperations> take(bool even_nothing);
  // The taken operations were issued; their memory is reused.
  void sent(QueuedOperations issued);
  // The taken operations could not be executed, and are queued again. Precondition: nothing is queued.
  void queue_again(QueuedOperations operations) { queued_ = std::move(operations); }

  void expect_release() { release_expected_ = true; }
  // `acquire` acquires the lock, and is called by the route before the first operation leaves.
  void defer(Acquire acquire) {
    acquire_ = std::move(acquire);
    release_expected_ = true;
  }
  bool deferred() const { return acquire_ != nullptr; }
  // Ends the deferral, and returns the function that acquires the lock; null if no lock is deferred.
  Acquire end_deferral() { return std::exchange(acquire_, nullptr); }

  // A flush begins: the burst of operations is over.
  void flush_begins() { bursts_.flushed(); }
  // A flush has completed everything. A lock that it did not need is still deferred.
  void flushed() { release_expected_ = deferred(); }

  // Returns whether the object is as a new one, but for expects_burst().
  bool at_rest() const { return queued_.empty() && !issuing_ && !release_expected_ && !deferred(); }
  bool any_queued() const { return !queued_.empty(); }
  bool expects_burst() const { return bursts_.expected(); }
  // Drops the queued operations of an epoch that never ended.
  void drop() { queued_ = {}; }

 private:
  bool keeps(bool atomic, bool in_burst, const Traffic& traffic) const;

  QueuedOperations queued_;
  Bursts bursts_;
  Acquire acquire_;
  bool issuing_ = false;
  bool release_expected_ = false;
};

}  // namespace farside
