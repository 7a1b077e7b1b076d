// SPDX-License-Identifier: BSD-3-Clause
// NodeTargets: the targets of a space on this node: this rank and its on-node peers. All other ranks are targets of the
// fabric (fabric/fabric_route.hpp).
//
// Thread safety: any for find(), once all targets are added. Cost of find(): a few instructions where the ranks of the
// node are consecutive, or follow each other at a distance that is a power of two; else a hash. Memory: 32 bytes per
// target, and 112 more for one whose data are private memory, or whose operations are counted; and up to 8.3 KiB for
// one for which puts were queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/growing_array.hpp"
#include "transport/base/statistics.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/accumulate_lock.hpp"
#include "transport/node/segment.hpp"

namespace farside {

// The state that only some on-node peers need.
struct NodeTargetExtra {
  std::byte* memory = nullptr;             // mapped data that operations do not use (of a shared space)
  OperationCounts::Row* counts = nullptr;  // in a process with one thread
  std::int32_t rank = -1;
  std::int32_t pid = 0;                      // of the route cma: the process
  std::uint64_t address = 0;                 // of its private data there; 0: the route is not cma
  AccumulateLockWord* lock = nullptr;        // of the route cma: of these data
  Mapping mapping;                           // of data in a file of ShareableMemory
  std::unique_ptr<PeerNodeHandler> handler;  // of the route cma, if the peer has one
  std::unique_ptr<OperationList> queued;     // of the route cma: puts that CmaRoute has queued
  bool queued_until_end = false;             // as QueuedPuts::Until::kEnd, of all of them
  RelaxedFlag posted;                        // some of this epoch were posted already
};

struct NodeTarget {
  std::int32_t rank = -1;
  std::uint32_t unit = 0;        // a number of the space's owner (Space::Request)
  std::byte* data = nullptr;     // where operations are loads and stores of this process
  std::byte* control = nullptr;  // the control block, where its words are mapped
  std::uint64_t bytes = 0;       // of data
};
static_assert(sizeof(NodeTarget) == 32);

// A compact reference to targets whose ranks are consecutive, for fast paths. Thread safety: any.
class ConsecutiveTargets {
 public:
  // `targets` may be empty, and must not move.
  explicit ConsecutiveTargets(std::span<const NodeTarget> targets)
      : of_rank_0_(reinterpret_cast<std::uintptr_t>(targets.data())),
        count_(static_cast<std::uint32_t>(targets.size())) {
    if (targets.empty()) return;
    first_ = static_cast<std::uint32_t>(targets.front().rank);
    of_rank_0_ -= std::uint64_t{first_} * sizeof(NodeTarget);
  }
  bool contains(int rank) const { return static_cast<std::uint32_t>(rank) - first_ < count_; }
  // Precondition: contains(rank).
  const NodeTarget& operator[](int rank) const {
    return *reinterpret_cast<const NodeTarget*>(of_rank_0_ + static_cast<std::uint32_t>(rank) * sizeof(NodeTarget));
  }

 private:
  std::uintptr_t of_rank_0_;  // where the target of rank 0 would be
  std::uint32_t first_ = 0;
  std::uint32_t count_;
};

class NodeTargets {
 public:
  // Targets are added in ascending order of ranks. Adding moves all of them.
  void reserve(std::size_t count) { targets_.reserve(count); }
  NodeTarget& add(int rank);
  // To be called after the last add().
  void arrange();

  // Returns the target of the rank, or null if the rank is not on this node.
  NodeTarget* find(int rank) { return const_cast<NodeTarget*>(std::as_const(*this).find(rank)); }
  const NodeTarget* find(int rank) const {
    const NodeTarget* const found = find_regular(rank);
    return found != nullptr || irregular_ == nullptr ? found : find_irregular(rank);
  }
  // The same, but null also for all ranks of a node whose ranks do not follow each other at a distance that is a power
  // of two. It calls no function, for the fast path.
  const NodeTarget* find_regular(int rank) const {
    const std::uint32_t at = (static_cast<std::uint32_t>(rank) - first_) >> shift_;
    return at < regular_ && begin_[at].rank == rank ? begin_ + at : nullptr;
  }
  // All targets, or none if their ranks are not consecutive.
  std::span<const NodeTarget> consecutive() const { return {begin_, shift_ == 0 ? regular_ : 0}; }
  // Of a peer. (This rank has data.)
  RouteKind route(const NodeTarget& target) const {
    if (target.data != nullptr) return RouteKind::kMapped;
    const NodeTargetExtra* const extra = this->extra(target);
    return extra != nullptr && extra->address != 0 ? RouteKind::kCma : RouteKind::kFabric;
  }
  NodeTargetExtra* extra(const NodeTarget& target) const {
    return extra_ == nullptr ? nullptr : extra_[index_of(target)].get();
  }
  // Precondition: all targets are added.
  NodeTargetExtra& make_extra(const NodeTarget& target);
  std::span<NodeTarget> all() { return targets_; }
  std::span<const NodeTarget> all() const { return targets_; }
  std::size_t size() const { return targets_.size(); }

 private:
  const NodeTarget* find_irregular(int rank) const;
  auto rank_of() const {
    return [this](int number) { return targets_[static_cast<std::size_t>(number)].rank; };
  }
  std::size_t index_of(const NodeTarget& target) const { return static_cast<std::size_t>(&target - targets_.data()); }

  std::vector<NodeTarget> targets_;
  std::unique_ptr<std::unique_ptr<NodeTargetExtra>[]> extra_;  // by target; null if no target needs it
  // The ranks from first_ on at the distance 1 << shift_, if they are regular; else regular_ is 0.
  NodeTarget* begin_ = nullptr;
  std::uint32_t first_ = 0;
  std::uint32_t shift_ = 0;
  std::uint32_t regular_ = 0;
  std::unique_ptr<RankIndex> irregular_;  // of other ranks
};

}  // namespace farside
