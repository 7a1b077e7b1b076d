// SPDX-License-Identifier: BSD-3-Clause
// MappedRoute: loads, stores and CPU atomics on data that this process maps: its own, and those of on-node peers.
// Operations are complete when they return. The functions whose names end in "at" are the fast path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/state.hpp"
#include "transport/base/statistics.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/accumulate_lock.hpp"
#include "transport/node/identity.hpp"
#include "transport/node/integer_method.hpp"
#include "transport/node/segment.hpp"
#include "transport/routes/route.hpp"

namespace farside {

// NodeTargets: the targets of a space on this node: this rank and its on-node peers. All other ranks are targets of the
// fabric (fabric/fabric_route.hpp).
//
// Thread safety: any for find(). Cost of find(): a few instructions where the ranks of the node are consecutive, or
// follow each other at a distance that is a power of two; else a binary search. Memory: 32 bytes per target, and 112
// more for one whose data are private memory, or whose operations are counted; and up to 8.3 KiB for one for which puts
// were queued.
class FabricControl;

// The state that only some on-node peers need.
struct NodeTargetExtra {
  std::byte* memory = nullptr;             // mapped data that operations do not use (of a shared space)
  OperationCounts::Row* counts = nullptr;  // in a process with one thread
  std::int32_t rank = -1;
  std::int32_t pid = 0;                      // of the route cma: the process
  std::uint64_t address = 0;                 // of its private data there; 0: the route is not cma
  AccumulateLockWord* lock = nullptr;        // of the route cma: of these data
  Mapping mapping;                           // of data in a file of ShareableMemory
  std::unique_ptr<PeerNodeHandler> handler;  // of the route cma
  std::unique_ptr<OperationList> queued;     // of the route cma: puts that CmaRoute has queued
  bool queued_until_end = false;             // as Route::Until::kEnd, of all of them
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
  // Makes the targets of these ranks, in ascending order.
  void assign(std::span<const int> ranks);

  // Returns the target of the rank, or null if the rank is not on this node.
  NodeTarget* find(int rank) { return const_cast<NodeTarget*>(std::as_const(*this).find(rank)); }
  const NodeTarget* find(int rank) const { return regular_ > 0 ? find_regular(rank) : find_irregular(rank); }
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
  NodeTargetExtra& make_extra(const NodeTarget& target);
  std::span<NodeTarget> all() { return targets_; }
  std::span<const NodeTarget> all() const { return targets_; }
  std::size_t size() const { return targets_.size(); }

 private:
  const NodeTarget* find_irregular(int rank) const;
  std::size_t index_of(const NodeTarget& target) const { return static_cast<std::size_t>(&target - targets_.data()); }

  std::vector<NodeTarget> targets_;
  std::unique_ptr<std::unique_ptr<NodeTargetExtra>[]> extra_;  // by target; null if no target needs it
  // The ranks from first_ on at the distance 1 << shift_, if they are regular; else regular_ is 0.
  NodeTarget* begin_ = nullptr;
  std::uint32_t first_ = 0;
  std::uint32_t shift_ = 0;
  std::uint32_t regular_ = 0;
};

// ControlWords: the control blocks of this rank and its on-node peers, and the route to the words of others. It owns
// the table of the node's ranks, so that the fast path finds a word in it without another load.
//
// A rank's control block:   | header: accumulate lock, wake event, integer words | control words ... | region words |
//                           0                                                    576                     whole pages
//
// Thread safety: any, once the space is made.

struct ControlHeader {
  static constexpr std::size_t kBytes = 576;  // control words follow
  std::uint64_t nonce;                        // of the segment, in the first control block (node/node_segment.hpp)
  AccumulateLockWord accumulate_lock;
  WakeEvent wake_event;
  ProcessIdentity owner;
  IntegerWords integers;

  static ControlHeader& of(std::byte* control_block) { return *reinterpret_cast<ControlHeader*>(control_block); }
};
static_assert(sizeof(ControlHeader) <= ControlHeader::kBytes);

class ControlWords {
 public:
  explicit ControlWords(int rank) : rank_(rank) {}
  NodeTargets& node() { return node_; }
  const NodeTargets& node() const { return node_; }
  int rank() const { return rank_; }

  // A control block that is mapped, and whose words CPU atomics change; or none.
  class Mapped {
   public:
    explicit Mapped(std::byte* begin) : begin_(begin) {}
    explicit operator bool() const { return begin_ != nullptr; }
    // `offset`: in bytes from the start of the control block, at least ControlHeader::kBytes.
    std::uint64_t& word(std::uint32_t offset) const { return *reinterpret_cast<std::uint64_t*>(begin_ + offset); }
    // Wakes the owner if it sleeps; called after a change of the words.
    void wake() const { ControlHeader::of(begin_).wake_event.wake_if_armed(); }

   private:
    std::byte* begin_;
  };
  Mapped mapped(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return Mapped(here != nullptr && !by_nic_ ? here->control : nullptr);
  }
  // The same for words that CPU atomics change in either domain.
  Mapped on_node(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return Mapped(here != nullptr ? here->control : nullptr);
  }
  // The route to words that are not mapped; null if there are none.
  FabricControl* route() const { return route_; }
  // The same for the words of a rank; null if they are mapped.
  FabricControl* route(int rank) const { return route_ == nullptr || mapped(rank) ? nullptr : route_; }
  // The rank of this node that a target, whose control words are not mapped, selects: the same on all ranks of the
  // node. -1 if there is no other rank, or if some control block of the node is not mapped.
  int near_home(int target) const {
    if (!node_mapped_ || mapped(target)) return -1;
    return node_.all()[static_cast<std::size_t>(target) % node_.size()].rank;
  }
  // The same as mapped() for the fast path: null also where operations towards the rank are not complete when they
  // return, and for some placements of ranks (NodeTargets::find_regular).
  std::uint64_t* fast(int rank, std::uint32_t word) const {
    const NodeTarget* const here = node_.find_regular(rank);
    if (here == nullptr || here->control == nullptr || by_nic_) return nullptr;
    if (!all_immediate_ && rank != rank_ && !info(node_.route(*here)).immediate) return nullptr;
    return reinterpret_cast<std::uint64_t*>(here->control + word);
  }
  // Returns whether operations towards all ranks are complete when they return; then all words are mapped, too.
  bool all_immediate() const { return all_immediate_; }
  // Returns whether CPU atomics change control words, own ones included: the domain cpu.
  bool changed_by_cpu() const { return !by_nic_; }
  // Returns whether the control words of on-node peers are mapped, the same on all ranks. (A rank may still have to go
  // over the fabric to some of them.)
  bool mapped_in_nodes() const { return mapped_in_nodes_; }
  // Returns this rank's own word. In the domain nic it is only for reading, and changes go through the route.
  std::uint64_t* own(std::uint32_t word) const { return reinterpret_cast<std::uint64_t*>(own_ + word); }
  WakeEvent& wake_event() const { return ControlHeader::of(own_).wake_event; }
  // For reports of long waits, and to find dead ranks. Returns the process of a rank of this node whose control words
  // are mapped; otherwise the identity is unknown.
  ProcessIdentity process_of(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return here != nullptr && here->control != nullptr ? ControlHeader::of(here->control).owner : ProcessIdentity();
  }

  std::byte* own_block() const { return own_; }

  // Called while the space is made: with this rank's control block, and when the ranks have agreed.
  void begin(std::byte* own) { own_ = own; }
  void finish(int ranks, bool by_nic, bool mapped_in_nodes, FabricControl* route) {
    by_nic_ = by_nic;
    mapped_in_nodes_ = mapped_in_nodes && !by_nic;
    route_ = route;
    node_mapped_ = node_.size() > 1 && std::ranges::all_of(node_.all(), &NodeTarget::control);
    const auto immediate = [this](const NodeTarget& each) { return info(node_.route(each)).immediate; };
    all_immediate_ = !by_nic && static_cast<int>(node_.size()) == ranks && std::ranges::all_of(node_.all(), immediate);
  }

 private:
  NodeTargets node_;
  std::byte* own_ = nullptr;
  FabricControl* route_ = nullptr;
  const int rank_;
  bool by_nic_ = false;
  bool all_immediate_ = false;
  bool mapped_in_nodes_ = false;
  bool node_mapped_ = false;  // this rank maps the control blocks of all ranks of its node, which are several
};

// memcpy for lengths that are unknown at compile time and are mostly the size of one element: one load and one store
// instead of a call. Returns false, and copies nothing, if no single load and store copies this many bytes.
[[gnu::always_inline]] inline bool copy_small(void* to, const void* from, std::size_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return true;
  }
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); return true;
    case 2: std::memcpy(to, from, 2); return true;
    case 4: std::memcpy(to, from, 4); return true;
    case 16: std::memcpy(to, from, 16); return true;
    default: return false;
  }
}

class MappedRoute final : public Route {
 public:
  MappedRoute(NodeTargets& node, int rank) : Route(RouteKind::kMapped, rank), node_(node) {}
  // Precondition: no operation is under way. `adapter` carries out atomics in the domain nic: complete when it returns,
  // and errors are logged.
  using Adapter = std::function<void(int rank, const DataOperation& operation)>;
  void set_rules(const AccumulateRules& rules, Adapter adapter) {
    take_rules(rules);
    adapter_ = std::move(adapter);
  }
  IntegerMethod& integers() { return integers_; }

  Status operate(int rank, const DataOperation& operation, Pending* own) override;
  std::optional<Status> move_blocks(int rank, const DataOperation& operation, std::size_t /*fragments*/) override {
    Route::count(rank, operation.counted(), operation.bytes() * operation.blocks);
    return operate(rank, operation, nullptr);
  }
  Status flush(int /*rank*/, bool /*locally*/) override { return flush_all(); }
  Status flush_all(bool /*locally*/ = false) override {
    this_thread.stores.drain();
    return {};
  }
  void expect_threads() override;

  // Operations at an address in the target's data: complete when they return.
  [[gnu::always_inline]] void put_at(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes) {
    if (counting_ || !copy_small(at, origin, bytes)) return put_at_slow(target, at, origin, bytes);
    this_thread.stores.made();
  }
  [[gnu::always_inline]] void get_at(const NodeTarget& target, const std::byte* at, void* origin,
                                     std::size_t bytes) const {
    if (counting_ || !copy_small(origin, at, bytes)) get_at_slow(target, at, origin, bytes);
  }
  void accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                     void* fetched, std::size_t elements, Access access = Access::kShared);
  // The inline first step of accumulate_at(): the sum of one integer of 4 or 8 bytes by a CPU atomic, without the
  // accumulate lock. Returns false, and does nothing, where accumulate_at() decides.
  [[gnu::always_inline]] bool try_add_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                         const void* origin, void* fetched, std::size_t elements, Access access) {
    const std::size_t bytes = added_bytes(type);
    if (bytes == 0 || op != ReduceOp::kSum || elements != 1 || access != Access::kShared) return false;
    if (rules_.integers_by_nic || rules_.method(type, at) != AtomicMethod::kAtomic) return false;
    const IntegerPhase by = integers_.begin(1);
    if (by != IntegerPhase::kAtomics) return false;
    bytes == sizeof(std::uint64_t) ? add_atomic<std::uint64_t>(at, origin, fetched)
                                   : add_atomic<std::uint32_t>(at, origin, fetched);
    integers_.end(by);
    count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, bytes);
    return true;
  }
  void compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                           const void* compare, void* fetched);

 private:
  using Route::count;
  void count(const NodeTarget& target, Counted what, std::size_t bytes) const {
    if (!counting_) [[likely]]
      return;
    const NodeTargetExtra* const extra = node_.extra(target);
    if (extra != nullptr && extra->counts != nullptr) return counts_->add_here(*extra->counts, what, bytes);
    count_slow(target.rank, what, bytes);
  }
  // Slow paths of put_at and get_at: counting, and sizes that copy_small does not copy. They are tail calls, so that
  // the fast paths need no frame.
  void put_at_slow(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes);
  void get_at_slow(const NodeTarget& target, const std::byte* at, void* origin, std::size_t bytes) const;
  // The operation, without counting. `compare`: of a compare_and_swap.
  [[gnu::always_inline]] inline void combine_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                                const void* origin, void* fetched, std::size_t elements, Access access,
                                                const void* compare);
  void combine_blocks(const NodeTarget& target, DataOperation rest);
  void atomic_by_nic_at(const NodeTarget& target, const std::byte* at, DataOperation operation);

  NodeTargets& node_;
  IntegerMethod integers_;  // the method of types with CPU atomics
  Adapter adapter_;
};

}  // namespace farside
