// SPDX-License-Identifier: BSD-3-Clause
// The targets of a space over the fabric, the order of the operations towards each, and which of them are coalesced.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/growing_array.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"
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

// TargetOrder: the order in which the operations towards one target over the fabric are issued. It is a state machine
// that issues nothing itself: the route asks it about each operation, and keeps or issues the operation accordingly.
//
// Queued operations are small operations that the application has called and the route has not issued yet; they are
// issued as one message. Phases:
//
//   free              a small operation leaves at once if nothing is under way and no burst is expected
//   release expected  (not in the domain nic) every small operation is queued, to leave in one message with the release
//                     that ends the epoch, or with the notification that follows the operation (notified access)
//   deferred          likewise, behind a lock that is not acquired yet: nothing may leave before acquire() is called
//
//     free  --expect_release-->  release expected  --flushed-->  free
//     free or release expected  --defer-->  deferred  --end_deferral-->  release expected
//
// An operation that is not queued must not overtake queued ones: offer() returns kIssueQueued until these are issued.
// Only puts and gets with a request may overtake them. While a thread issues the operations that it has taken, no other
// thread takes or issues operations.
//
// Bursts: if the small operations towards a target come in bursts, several in quick succession and then a flush, the
// next burst travels in one message from its first operation on. Otherwise the first operation is issued at once, so
// that it is under way while the application computes.
//
// Not thread-safe: the mutex of the route guards it. Cost: no remote operation; two reads of the clock per burst.
// Memory: 80 bytes, and a list while operations are queued.
class TargetOrder {
 public:
  // The state of the operations under way towards the target.
  struct Traffic {
    bool idle;           // nothing
    bool messages_idle;  // nothing to its handler
    bool by_nic;         // the adapter takes each put and get at once, and needs no process at the target
  };
  enum class Next : std::uint8_t {
    kQueued,       // the operation is queued: nothing is to be done
    kIssueQueued,  // the queued operations must leave first; then offer the operation again
    kIssue         // the operation leaves by itself
  };
  using Acquire = std::function<Status()>;

  // `burst_expected`: the last burst of this target has ended as one that is followed by others (expects_burst()).
  explicit TargetOrder(bool burst_expected = false) : burst_expected_(burst_expected) {}

  // Queues a copy of the operation, or says how it leaves. Counts it in its burst.
  Next offer(const DataOperation& operation, const Traffic& traffic) {
    const bool small = operation.bytes() <= (step_expected() ? kMostBeforeRelease : kMostCoalesced);
    if (!small) return queued_ == nullptr && !issuing_ ? Next::kIssue : Next::kIssueQueued;
    // Before a release all small operations are queued anyway; puts and gets that the adapter takes never begin a list.
    const bool counts = !step_expected() && (!traffic.by_nic || operation.atomic());
    if (counts && ++operations_ == 1) burst_begun_ = Clock::now();
    if (!queues(operation.atomic(), counts && burst_expected_, traffic))
      return issuing_ ? Next::kIssueQueued : Next::kIssue;
    joined_ = joined_ || counts;
    if (queued_ == nullptr) queued_ = OperationList::take_spare();
    return queued_->add(operation) ? Next::kQueued : Next::kIssueQueued;
  }
  // The same for a list of fragments. Returns whether it is queued; `list` is null then.
  bool offer(std::unique_ptr<OperationList>& list, const Traffic& traffic) {
    if (queued_ != nullptr || !queues(list->has_atomics(), false, traffic)) return false;
    queued_ = std::move(list);
    return true;
  }

  // Takes the queued operations, to be issued; null: none. Returns nothing if another thread issues now: the caller
  // tries again. `even_nothing`: the caller issues its own operation behind the queued ones, and excludes other
  // threads even if no operation is queued. If operations were taken or `even_nothing` is true, the caller calls sent()
  // afterwards.
  std::optional<std::unique_ptr<OperationList>> take(bool even_nothing) {
    if (issuing_) return std::nullopt;
    issuing_ = queued_ != nullptr || even_nothing;
    return std::move(queued_);
  }
  // The taken operations were issued.
  void sent() { issuing_ = false; }
  // The taken operations could not be executed, and are queued again. Precondition: nothing is queued.
  void queue_again(std::unique_ptr<OperationList> list) { queued_ = std::move(list); }

  void expect_release() { release_expected_ = true; }
  // The same of a notification, until it is sent or a flush completes.
  void expect_notification(bool expected) { notification_expected_ = expected; }
  // `acquire` acquires the lock, and is called by the route before the first operation leaves.
  void defer(Acquire acquire) {
    acquire_ = std::move(acquire);
    release_expected_ = true;
  }
  bool deferred() const { return acquire_ != nullptr; }
  // Ends the deferral, and returns the function that acquires the lock; null if no lock is deferred.
  Acquire end_deferral() { return std::exchange(acquire_, nullptr); }

  // A flush begins: the burst of operations is over.
  void flush_begins() {
    if (operations_ == 0) return;
    burst_expected_ =
        operations_ > 1 && (burst_expected_ || joined_) && Clock::now() - burst_begun_ <= Timing::kLongestBurst;
    operations_ = 0;
    joined_ = false;
  }
  // A flush has completed everything. A lock that it did not need is still deferred.
  void flushed() { release_expected_ = deferred(), notification_expected_ = false; }

  // Returns whether the object is as a new one, but for expects_burst().
  bool at_rest() const { return queued_ == nullptr && !issuing_ && !step_expected() && !deferred(); }
  bool any_queued() const { return queued_ != nullptr; }
  bool expects_burst() const { return burst_expected_; }
  // Drops the queued operations of an epoch that never ended.
  void drop() { queued_.reset(); }

 private:
  // The first small operation leaves at once, so that it is under way while the application computes. Operations that
  // follow before it completes would each cost about 10 us in the provider. In a burst the first one is queued, too.
  bool queues(bool atomic, bool in_burst, const Traffic& traffic) const {
    if ((step_expected() && !traffic.by_nic) || queued_ != nullptr) return true;
    if (traffic.by_nic && !atomic) return false;
    if (in_burst && traffic.idle) return true;
    return atomic ? !traffic.messages_idle : !traffic.idle;
  }

  bool step_expected() const { return release_expected_ || notification_expected_; }

  std::unique_ptr<OperationList> queued_;  // null, or some operations
  Acquire acquire_;
  bool issuing_ = false;
  bool release_expected_ = false, notification_expected_ = false;
  bool burst_expected_ = false, joined_ = false;  // joined_: an operation of this burst was coalesced
  std::uint32_t operations_ = 0;                  // small ones since the last flush
  Clock::time_point burst_begun_;                 // time of the first of them
};

// The facts of a rank's memory that an origin needs, but its address. Exchanged as bytes. Addresses and sizes have 48
// bits, as those of user space on x86-64 and aarch64, and keys 32, as those of verbs. Where processes choose the keys,
// all ranks have chosen the same, and bases and keys are 0 here.
struct [[gnu::packed]] TargetDescription {
  std::uint64_t control_base : 48 = 0;  // of the control block, for adapter atomics
  std::uint64_t data_base : 48 = 0;
  std::uint64_t bytes : 48 = 0;  // of data
  std::uint32_t control_key = 0, data_key = 0;
  std::uint32_t unit = 0;  // a number of the space's owner (Space::Request)
};
static_assert(sizeof(TargetDescription) == 30);

// FabricTargets: the entries of the ranks that a space has reached over the fabric, and the list of busy targets. A
// rank that is never reached has no entry. A target is busy while it has operations that no flush has completed, queued
// operations, an expected release, or a deferred lock. A target that is not busy any more is at rest. It keeps its
// BusyTarget for the next operation, until another target needs the BusyTarget or all targets are visited.
//
// Thread safety: any, if it was made or told so (expect_threads()); else one thread, which locks nothing. Each
// target has its own mutex, which guards its order; another one, of the list of busy targets, is taken when a
// target gets or loses its BusyTarget. A thread that takes both takes that of the target first. Cost: O(1). Memory
// per reached rank: 24 bytes, 13 to 24 of an index and tables, and 30 of its description where ranks differ; some 300
// bytes more per busy target, and for at most kMostResting others.
struct BusyTarget;

// Whether operations were sent with a notification and may not have been executed yet. Changed with the target's mutex
// held, read without. A thread that learns of an execution gives the number of the latest notification that was
// executed, since other threads may have sent more. Their number has 15 bits: fewer are sent during a round trip.
class Unconfirmed {
 public:
  bool any() const { return (last() & 1U) != 0; }
  // The latest notification.
  std::uint16_t last() const { return state_.load(std::memory_order_relaxed); }
  // Called when a notification was sent. A confirmation that was requested before does not cover it.
  void sent() { state_.store(static_cast<std::uint16_t>((last() | 1U) + 2U), std::memory_order_relaxed); }
  void executed(std::uint16_t latest) {
    if (latest == last()) state_.store(static_cast<std::uint16_t>(latest & ~1U), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint16_t> state_{0};  // the number, and the lowest bit: some are not confirmed
};

// A rank that was reached.
struct FabricTarget {
  Published<std::uint32_t> description = 0;  // its number (FabricTargets); 0 while it is unknown
  std::uint32_t peer = 0;
  std::uint32_t rank = 0;
  // Guards the following members, and the order of `busy`.
  SmallMutex mutex;
  bool expects_burst = false;  // TargetOrder::expects_burst(), while there is no BusyTarget
  Unconfirmed unconfirmed;
  BusyTarget* busy = nullptr;  // null, unless something is outstanding, or was a short time ago
};
static_assert(sizeof(FabricTarget) == 24);

// The operations towards a target.
struct BusyTarget : Pending {
  FabricTarget* target = nullptr;
  int rank = 0;
  std::atomic<std::uint32_t> users{0};  // calls that use this object now
  std::size_t place = 0;                // in the list of busy targets
  // The latest notification (Unconfirmed) before the last list among the messages, whose reply confirms it.
  Published<std::uint16_t> before_list = 0;
  // The notifications without a reply (FabricRoute::notify), and those of them behind which a message with a reply was
  // sent.
  Published<std::uint32_t> notified = 0, asked = 0;
  Published<std::uint32_t> interruption_before = 0;  // PeerLosses::last_interruption before the first of the others
  std::uint64_t unused = 0;                          // receives the former values of words to which notifications add
  TargetOrder order;
  std::vector<std::unique_ptr<Pending>> abandoned;  // of abandoned requests: a flush returns their errors

  // Returns whether nothing is outstanding. With the target's mutex held.
  bool at_rest() const { return unreferenced() && !has_error() && order.at_rest() && notified == asked; }
};

class FabricTargets {
  auto rank_of() const {
    return [this](int number) { return static_cast<int>(targets_[static_cast<std::size_t>(number)].rank); };
  }

 public:
  // The most targets at rest that keep a BusyTarget.
  static constexpr std::size_t kMostResting = 8;

  explicit FabricTargets(bool threaded = true) : threaded_(threaded) {}

  // From now on several threads may use targets. Precondition: no call is in progress.
  void expect_threads() { threaded_ = true; }
  // Locks the target's mutex.
  std::unique_lock<SmallMutex> hold(FabricTarget& target) const {
    return threaded_ ? std::unique_lock(target.mutex) : std::unique_lock<SmallMutex>();
  }

  // Returns the entry of the rank, or null if the rank has none. Entries do not move.
  FabricTarget* find(int rank) const {
    const int number = index_.find(rank, rank_of());
    return number < 0 ? nullptr : &targets_[static_cast<std::size_t>(number)];
  }
  // Returns the entry of the rank; adds one if it has none. `common`: the description that all ranks have, or null if
  // they differ.
  FabricTarget& add(int rank, Peer peer, const TargetDescription* common);
  // Keeps its own description for the target, unless it has one.
  void describe(FabricTarget& target, const TargetDescription& description);
  // Precondition: the target's description is known.
  const TargetDescription& description(const FabricTarget& target) const {
    const std::uint32_t number = target.description;
    return number == kCommon ? *common_ : descriptions_[number - kFirstOwn];
  }

  // The use of a busy target during a call. The target stays busy while it is used.
  struct EndUse {
    FabricTargets* targets;
    bool visits;  // as one of all targets
    void operator()(BusyTarget* busy) const { targets->end(*busy, visits); }
  };
  struct Use : std::unique_ptr<BusyTarget, EndUse> {
    // `only_busy`: null if the target has no object.
    Use(FabricTargets& targets, FabricTarget& target, bool only_busy = false)
        : unique_ptr(targets.begin(target, only_busy), EndUse{&targets, false}) {}
    Use(FabricTargets& targets, BusyTarget& joined) : unique_ptr(&joined, EndUse{&targets, true}) {}
  };

  // Returns whether any target may be busy. One load.
  bool any_busy() const { return attached_.load(std::memory_order_acquire) != 0; }
  // Calls visit(Use&) for each target that is busy now, or at rest with its object.
  template <class Visit>
  void for_each_busy(Visit&& visit) {
    std::vector<Use> uses;
    {
      const std::scoped_lock held(list_mutex_);
      // A flush does not fail for want of this memory.
      patiently([&] { uses.reserve(busy_.size()); });
      for (const std::unique_ptr<BusyTarget>& busy : busy_) {
        busy->users.fetch_add(1, std::memory_order_relaxed);
        uses.push_back(Use(*this, *busy));
      }
    }
    for (Use& use : uses) visit(use);
  }

  // For measurements, while no other thread uses targets.
  std::size_t reached() const { return targets_.size(); }
  std::size_t busy() const;

 private:
  BusyTarget* begin(FabricTarget& target, bool only_busy);
  void end(BusyTarget& busy, bool visits);
  BusyTarget& attach(FabricTarget& target);
  void detach(BusyTarget& busy);

  // The numbers of descriptions: that of all ranks, and the first one of a rank's own.
  static constexpr std::uint32_t kCommon = 1, kFirstOwn = 2;

  RelaxedFlag threaded_;
  std::mutex adding_;  // guards the following members against other writers, up to the next mutex
  const TargetDescription* common_ = nullptr;  // set once, as other threads read it
  RankIndex index_;
  StableList<FabricTarget> targets_;
  StableList<TargetDescription> descriptions_;

  std::mutex list_mutex_;                          // guards the following members
  std::vector<std::unique_ptr<BusyTarget>> busy_;  // and those at rest
  std::atomic<std::size_t> attached_{0};           // the length of busy_, also read without the mutex
};

}  // namespace farside
