// SPDX-License-Identifier: BSD-3-Clause
// FabricTargets: what a space knows of the ranks that it has reached over the fabric, and the busy ones among them. A
// rank that is never reached has no entry. A target is busy while something is outstanding towards it: operations
// that no flush has completed, kept operations, an expected release, a deferred lock.
//
// Thread safety: any; one mutex guards all members, and the order of each target. Cost: O(1). Memory per reached rank:
// 24 bytes, 3 to 6 of an index, and 32 of its description where ranks differ (48 if it is not compact); per busy
// target some 370 bytes more.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/routes/outstanding.hpp"
#include "transport/routes/rank_index.hpp"
#include "transport/routes/target_description.hpp"
#include "transport/routes/target_order.hpp"

namespace farside {

struct BusyTarget;

// A rank that was reached.
struct FabricTarget {
  BusyTarget* busy = nullptr;      // null while nothing is outstanding
  KnownDescription description;    // none while it is unknown; many targets may have the same
  std::uint32_t peer = 0;
  // Only with the mutex held.
  std::uint32_t rank : 31 = 0;
  std::uint32_t expects_burst : 1 = 0;  // Bursts::expected(), while the target is not busy
};
static_assert(sizeof(FabricTarget) == 24);

// The operations towards a target.
struct BusyTarget : Outstanding {
  FabricTarget* target = nullptr;
  std::int32_t rank = 0;
  std::uint32_t users = 0;  // calls that use this object now
  std::size_t place = 0;    // in the list of busy targets
  bool pinned = false;      // requests refer to this object, which therefore stays the target's
  TargetOrder order;
  std::vector<std::unique_ptr<Outstanding>> abandoned;  // of abandoned requests: a flush returns their errors
};

class FabricTargets {
 public:
  FabricTargets() = default;
  FabricTargets(const FabricTargets&) = delete;
  FabricTargets& operator=(const FabricTargets&) = delete;

  std::mutex& mutex() { return mutex_; }

  // Returns the entry of the rank, or null if the rank has none. Entries do not move.
  FabricTarget* find(int rank) {
    const std::scoped_lock held(mutex_);
    return find_locked(rank);
  }
  // The same for a caller that holds the mutex.
  FabricTarget* find_locked(int rank);
  // Returns the entry of the rank; adds one if it has none.
  FabricTarget& add(int rank, Peer peer, const TargetDescription* description);
  // Keeps a description of its own for the target, unless it has one.
  void describe(FabricTarget& target, const TargetDescription& description);

  // The use of an busy target during a call. The target stays busy while it is used.
  class Use {
   public:
    Use(FabricTargets& targets, FabricTarget& target, int rank)
        : targets_(&targets), busy_(&targets.begin(target, rank)) {}
    // Of a target that is busy already; null if it is not.
    Use(FabricTargets& targets, FabricTarget& target) : targets_(&targets), busy_(targets.join(target)) {}
    Use(Use&& other) noexcept : targets_(other.targets_), busy_(std::exchange(other.busy_, nullptr)) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (busy_ != nullptr) targets_->end(*busy_);
    }
    explicit operator bool() const { return busy_ != nullptr; }
    BusyTarget& operator*() const { return *busy_; }
    BusyTarget* operator->() const { return busy_; }

   private:
    friend class FabricTargets;
    Use(FabricTargets& targets, BusyTarget& joined) : targets_(&targets), busy_(&joined) {}
    FabricTargets* targets_;
    BusyTarget* busy_;
  };

  // Returns whether any target is busy. One load.
  bool any_busy() const { return busy_count_.load(std::memory_order_acquire) != 0; }
  // Calls visit(Use&) for each target that is busy now.
  template <class Visit>
  void for_each_busy(Visit&& visit) {
    std::vector<Use> uses;
    {
      const std::scoped_lock held(mutex_);
      uses.reserve(busy_.size());
      for (const std::unique_ptr<BusyTarget>& busy : busy_) {
        ++busy->users;
        uses.push_back(Use(*this, *busy));
      }
    }
    for (Use& use : uses) visit(use);
  }

  // For measurements.
  std::size_t reached() const { return targets_.size(); }
  std::size_t busy() const { return busy_count_.load(std::memory_order_relaxed); }

 private:
  // A list whose elements do not move. Several share an allocation.
  template <class T>
  class List {
   public:
    std::size_t size() const { return size_; }
    T& operator[](std::size_t number) { return (*chunks_[number / kTogether])[number % kTogether]; }
    T& add(const T& made) {
      if (size_ % kTogether == 0) chunks_.push_back(std::make_unique<std::array<T, kTogether>>());
      return (*this)[size_++] = made;
    }

   private:
    static constexpr std::size_t kTogether = 8;
    std::vector<std::unique_ptr<std::array<T, kTogether>>> chunks_;
    std::size_t size_ = 0;
  };
  // The most objects that are kept for later targets. One suffices for programs that complete each operation.
  static constexpr std::size_t kMostSpare = 1;

  auto rank_of() {
    return [this](int number) { return static_cast<int>(targets_[static_cast<std::size_t>(number)].rank); };
  }
  BusyTarget& begin(FabricTarget& target, int rank);
  BusyTarget* join(FabricTarget& target);
  void end(BusyTarget& busy);

  std::mutex mutex_;
  RankIndex index_;
  List<FabricTarget> targets_;
  List<CompactDescription> compact_descriptions_;
  List<TargetDescription> descriptions_;
  std::vector<std::unique_ptr<BusyTarget>> busy_;
  std::atomic<std::size_t> busy_count_{0};
  std::vector<std::unique_ptr<BusyTarget>> spare_;
};

}  // namespace farside
