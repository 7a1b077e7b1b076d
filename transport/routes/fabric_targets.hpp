// SPDX-License-Identifier: BSD-3-Clause
// FabricTargets: what a space knows of the ranks that it has reached over the fabric, and the active ones among them. A
// rank that is never reached has no entry. A target is active while something is outstanding towards it: operations
// that no flush has completed, kept operations, an expected release, a deferred lock.
//
// Thread safety: any; one mutex guards all members, and the order of each target. Cost: O(1). Memory per reached rank:
// 64 bytes, and 16 to 32 of an index; per active target some 370 bytes more.
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
#include "transport/routes/target_order.hpp"

namespace farside {

struct ActiveTarget;

// A rank that was reached.
struct FabricTarget {
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;            // a number of the space's owner (Space::Request)
  RemoteKey control_key;            // of the control block, for adapter atomics
  RemoteKey data_key;
  std::uint64_t bytes = 0;          // of data
  ActiveTarget* active = nullptr;   // null while nothing is outstanding
  bool described = false;           // keys, bytes and tag are known
  bool expects_burst = false;       // Bursts::expected(), while the target is not active
};
static_assert(sizeof(FabricTarget) == 64);

// The operations towards a target.
struct ActiveTarget : Outstanding {
  FabricTarget* target = nullptr;
  std::int32_t rank = 0;
  std::uint32_t users = 0;          // calls that use this object now
  std::size_t place = 0;            // in the list of active targets
  bool pinned = false;              // requests refer to this object, which therefore stays the target's
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
  FabricTarget* find_locked(int rank) {
    const int number = index_.find(rank);
    return number < 0 ? nullptr : &target_at(static_cast<std::size_t>(number));
  }
  // Returns the entry of the rank; adds `made` if it has none.
  FabricTarget& add(int rank, const FabricTarget& made);

  // The use of an active target during a call. The target stays active while it is used.
  class Use {
   public:
    Use(FabricTargets& targets, FabricTarget& target, int rank)
        : targets_(&targets), active_(&targets.begin(target, rank)) {}
    // Of a target that is active already; null if it is not.
    Use(FabricTargets& targets, FabricTarget& target) : targets_(&targets), active_(targets.join(target)) {}
    Use(Use&& other) noexcept : targets_(other.targets_), active_(std::exchange(other.active_, nullptr)) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (active_ != nullptr) targets_->end(*active_);
    }
    explicit operator bool() const { return active_ != nullptr; }
    ActiveTarget& operator*() const { return *active_; }
    ActiveTarget* operator->() const { return active_; }

   private:
    friend class FabricTargets;
    Use(FabricTargets& targets, ActiveTarget& joined) : targets_(&targets), active_(&joined) {}
    FabricTargets* targets_;
    ActiveTarget* active_;
  };

  // Returns whether any target is active. One load.
  bool any_active() const { return active_count_.load(std::memory_order_acquire) != 0; }
  // Calls visit(Use&) for each target that is active now.
  template <class Visit>
  void for_each_active(Visit&& visit) {
    std::vector<Use> uses;
    {
      const std::scoped_lock held(mutex_);
      uses.reserve(active_.size());
      for (const std::unique_ptr<ActiveTarget>& active : active_) {
        ++active->users;
        uses.push_back(Use(*this, *active));
      }
    }
    for (Use& use : uses) visit(use);
  }

  // For measurements.
  std::size_t reached() const { return reached_; }
  std::size_t active() const { return active_count_.load(std::memory_order_relaxed); }

 private:
  // The targets that share an allocation.
  static constexpr std::size_t kTogether = 8;
  using Chunk = std::array<FabricTarget, kTogether>;
  // The most objects that are kept for later targets. One suffices for programs that complete each operation.
  static constexpr std::size_t kMostSpare = 1;

  FabricTarget& target_at(std::size_t number) { return (*chunks_[number / kTogether])[number % kTogether]; }
  ActiveTarget& begin(FabricTarget& target, int rank);
  ActiveTarget* join(FabricTarget& target);
  void end(ActiveTarget& active);

  std::mutex mutex_;
  RankIndex index_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // of targets, which do not move
  std::size_t reached_ = 0;
  std::vector<std::unique_ptr<ActiveTarget>> active_;
  std::atomic<std::size_t> active_count_{0};
  std::vector<std::unique_ptr<ActiveTarget>> spare_;
};

}  // namespace farside
