// SPDX-License-Identifier: BSD-3-Clause
// The targets of a space over the fabric.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/growing_array.hpp"
#include "transport/base/threads.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/routes/fabric/target_order.hpp"

namespace farside {

// What an origin must know of a rank's memory besides its address. Values; no thread safety of their own. Memory: 32
// bytes per description that is compact, else 48.

// Exchanged as bytes.
struct TargetDescription {
  RemoteKey control_key;  // of the control block, for adapter atomics
  RemoteKey data_key;
  std::uint64_t bytes = 0;   // of data
  std::uint32_t unit = 0;    // a number of the space's owner (Space::Request)
  std::uint32_t unused = 0;  // in place of padding
};

// The same with keys of 32 bits, as those of verbs, and addresses and sizes of 48 bits, as those
// of user space on x86-64 and aarch64.
class CompactDescription {
 public:
  static bool fits(const TargetDescription& full) {
    return full.control_key.key <= kMostKey && full.data_key.key <= kMostKey && Short::fits(full.control_key.base) &&
           Short::fits(full.data_key.base) && Short::fits(full.bytes);
  }
  CompactDescription() = default;
  // Precondition: fits(full).
  explicit CompactDescription(const TargetDescription& full)
      : control_key_(static_cast<std::uint32_t>(full.control_key.key)),
        data_key_(static_cast<std::uint32_t>(full.data_key.key)),
        unit_(full.unit),
        control_base_(full.control_key.base),
        data_base_(full.data_key.base),
        bytes_(full.bytes) {}
  TargetDescription full() const {
    return {{control_base_.value(), control_key_}, {data_base_.value(), data_key_}, bytes_.value(), unit_, 0};
  }

 private:
  static constexpr std::uint64_t kMostKey = std::numeric_limits<std::uint32_t>::max();
  // A number of 48 bits.
  class Short {
   public:
    static bool fits(std::uint64_t value) { return value >> 48 == 0; }
    Short() = default;
    explicit Short(std::uint64_t value)
        : parts_{static_cast<std::uint16_t>(value), static_cast<std::uint16_t>(value >> 16),
                 static_cast<std::uint16_t>(value >> 32)} {}
    std::uint64_t value() const { return parts_[0] | std::uint64_t{parts_[1]} << 16 | std::uint64_t{parts_[2]} << 32; }

   private:
    std::array<std::uint16_t, 3> parts_{};
  };

  std::uint32_t control_key_ = 0, data_key_ = 0, unit_ = 0;
  Short control_base_, data_base_, bytes_;
};
static_assert(sizeof(CompactDescription) == 32);

// FabricTargets: the entries of the ranks that a space has reached over the fabric, and the list of busy targets. A
// rank that is never reached has no entry. A target is busy while it has operations that no flush has completed, queued
// operations, an expected release, or a deferred lock. A target that is not busy any more is at rest. It keeps its
// BusyTarget for the next operation, until another target needs the BusyTarget or all targets are visited.
//
// Thread safety: any, if it was made or told so (expect_threads()); else one thread, which locks nothing. Each
// target has a mutex of its own, which guards its order; another one, of the list of busy targets, is taken when a
// target gets or loses its BusyTarget. A thread that takes both takes that of the target first. Cost: O(1). Memory
// per reached rank: 24 bytes, 8 to 13 of an index and tables (10 to 24 with more than 49,152 ranks), and 32 of its
// description where ranks differ (48 if it is not compact); some 400 bytes more per
// busy target, and for at most kMostResting others.
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
  bool expects_burst = false;  // Bursts::expected(), while there is no BusyTarget
  Unconfirmed unconfirmed;
  BusyTarget* busy = nullptr;  // null, unless something is outstanding, or was a short time ago
};
static_assert(sizeof(FabricTarget) == 24);

// The operations towards a target.
struct BusyTarget : Outstanding {
  FabricTarget* target = nullptr;
  std::int32_t rank = 0;
  std::atomic<std::uint32_t> users{0};  // calls that use this object now
  std::size_t place = 0;                // in the list of busy targets
  bool pinned = false;                  // requests refer to this object, which therefore stays the target's
  TargetOrder order;
  std::vector<std::unique_ptr<Outstanding>> abandoned;  // of abandoned requests: a flush returns their errors

  // Returns whether nothing is outstanding. With the target's mutex held.
  bool at_rest() const { return !pinned && done() && !has_error() && order.at_rest(); }
};

class FabricTargets {
  auto rank_of() const {
    return [this](int number) { return static_cast<int>(targets_[static_cast<std::size_t>(number)].rank); };
  }

 public:
  // The most targets at rest that keep a BusyTarget.
  static constexpr std::size_t kMostResting = 8;

  explicit FabricTargets(bool threaded = true) : threaded_(threaded) { spare_.reserve(kMostSpare); }
  FabricTargets(const FabricTargets&) = delete;
  FabricTargets& operator=(const FabricTargets&) = delete;

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
  // Keeps a description of its own for the target, unless it has one.
  void describe(FabricTarget& target, const TargetDescription& description);
  // Precondition: the target's description is known.
  TargetDescription description(const FabricTarget& target) const;

  // The use of a busy target during a call. The target stays busy while it is used.
  class Use {
   public:
    Use(FabricTargets& targets, FabricTarget& target, int rank)
        : targets_(&targets), busy_(&targets.begin(target, rank)) {}
    // Of the object that the target has; null if it has none.
    Use(FabricTargets& targets, FabricTarget& target) : targets_(&targets), busy_(targets.join(target)) {}
    Use(Use&& other) noexcept
        : targets_(other.targets_), busy_(std::exchange(other.busy_, nullptr)), visits_(other.visits_) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (busy_ != nullptr) targets_->end(*busy_, visits_);
    }
    explicit operator bool() const { return busy_ != nullptr; }
    BusyTarget& operator*() const { return *busy_; }
    BusyTarget* operator->() const { return busy_; }

   private:
    friend class FabricTargets;
    Use(FabricTargets& targets, BusyTarget& joined) : targets_(&targets), busy_(&joined), visits_(true) {}
    FabricTargets* targets_;
    BusyTarget* busy_;
    bool visits_ = false;  // as one of all targets
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
        change_users(*busy, 1);
        uses.push_back(Use(*this, *busy));
      }
    }
    for (Use& use : uses) visit(use);
  }

  // For measurements, while no other thread uses targets.
  std::size_t reached() const { return targets_.size(); }
  std::size_t busy() const;

 private:
  // The most objects that are kept for later targets. One suffices for programs that complete each operation.
  static constexpr std::size_t kMostSpare = 1;

  // Returns the number before.
  std::uint32_t change_users(BusyTarget& busy, std::uint32_t by) const {
    if (threaded_) return busy.users.fetch_add(by, std::memory_order_relaxed);
    const std::uint32_t before = busy.users.load(std::memory_order_relaxed);
    busy.users.store(before + by, std::memory_order_relaxed);
    return before;
  }
  BusyTarget& begin(FabricTarget& target, int rank);
  BusyTarget* join(FabricTarget& target);
  void end(BusyTarget& busy, bool visits);
  BusyTarget& attach(FabricTarget& target, int rank);
  void detach(BusyTarget& busy);

  // The numbers of descriptions: that of all ranks, then the compact ones, even, and the others, odd.
  static constexpr std::uint32_t kCommon = 1;
  static constexpr std::uint32_t kFirstOwn = 2;

  RelaxedFlag threaded_;
  std::mutex adding_;  // guards the following members against other writers, up to the next mutex
  const TargetDescription* common_ = nullptr;  // set once, as other threads read it
  RankIndex index_;
  StableList<FabricTarget> targets_;
  StableList<CompactDescription> compact_descriptions_;
  StableList<TargetDescription> descriptions_;

  std::mutex list_mutex_;                          // guards the following members
  std::vector<std::unique_ptr<BusyTarget>> busy_;  // and those at rest
  std::vector<std::unique_ptr<BusyTarget>> spare_;
  std::atomic<std::size_t> attached_{0};  // the length of busy_, also read without the mutex
};

}  // namespace farside
