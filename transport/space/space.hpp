// SPDX-License-Identifier: BSD-3-Clause
// Space: the memory that the ranks of a group have made reachable to each other. Each rank contributes a control block
// (words for protocols) and data (allocated here, or private memory of the application). The ranks of this node, and
// the others as they are reached, are targets; each has one route (routes/route.hpp). The control words of the ranks
// are ControlWords.
//
// make_space.hpp makes a space.
//
// No memory grows with the number of ranks, except two bits of shared memory per rank in the control words of epochs/,
// whose pages are allocated at their first use, and in dynamic spaces one bit per rank (AttachedRegions).
//
// Thread safety: with Request::threaded or after expect_threads(), several threads may be in operations, flushes and
// control calls at once; deferred locks are for processes with one thread.
//
// Errors: an operation's Status has the errors of issuing; flush returns later ones. kPeer: a peer is lost, or an
// operation failed; kRange: the memory is not attached, or the target's handler refused; kNoMemory.
//
// Cost: node/on-node.md. Memory: 32 bytes per rank of this node, and those of FabricTargets per rank that was reached
// over the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/node_segment.hpp"
#include "transport/routes/cma/cma_route.hpp"
#include "transport/routes/mapped/mapped_route.hpp"

namespace farside {

class FabricRoute;
class Regions;

class Space {
 public:
  static constexpr std::size_t kHeaderBytes = ControlHeader::kBytes;
  struct Request {
    int rank = 0;
    int ranks = 1;
    std::uint64_t id = 0;           // random, and equal on all ranks
    std::size_t control_bytes = 0;  // includes the header; equal on all ranks
    std::uint64_t data_bytes = 0;
    void* private_data = nullptr;  // null: allocate the data
    std::uint32_t unit = 0;        // a number that origins learn together with the bytes of the data
    // Every rank maps every other rank's data for loads and stores, whatever the routes of operations are. All ranks
    // must be members of the node.
    bool shared = false;
    // Of a shared space: this rank wants the data of all ranks to lie contiguously in rank order. They do if at least
    // one rank wants this.
    bool contiguous = false;
    // Allocated data begin at multiples of this power of two in all mappings. The largest alignment that a rank of the
    // node wants applies to all ranks of the node. Of contiguous data, only the data of the first rank are aligned.
    std::uint64_t alignment = 1;
    // The data of this rank may be larger than the free memory.
    bool overcommit = false;
    // From which NUMA nodes the pages of allocated data come.
    Numa numa = Numa::kFirstTouch;
    // The only data are the regions that ranks attach later (space/regions.hpp).
    bool dynamic = false;
    // Several threads of this process may be in operations at once.
    bool threaded = false;
    // Accumulates will be of single elements, by operations that adapters have. If all ranks say so, adapters with
    // atomics combine 64-bit integers; otherwise the handler and CPUs do (AccumulateRules::choose_domains).
    bool single_elements = false;
  };
  ~Space();

  // From now on operations are counted by target in the returned object, and not in the process's statistics.
  OperationCounts& count_by_target(bool threaded);
  // From now on several threads may use the space at once. Precondition: no thread is in an operation.
  void expect_threads();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool shared() const { return shared_; }  // as Memory::shared
  std::byte* data() const { return data_; }
  // Null unless the space is dynamic.
  Regions* regions() const { return regions_.get(); }
  // Returns whether some rank other than this one (or, in a space of one rank, this one) has the route.
  bool uses(RouteKind kind) const;
  RouteKind kind(int target) const {
    const NodeTarget* const here = words_.node().find(target);
    if (here == nullptr) return RouteKind::kFabric;
    return target == rank_ ? RouteKind::kSelf : words_.node().route(*here);
  }
  // The route to a rank's data.
  Route& route(int target) {
    const NodeTarget* const here = words_.node().find(target);
    if (here != nullptr && here->data != nullptr) [[likely]]
      return mapped_;
    if (here != nullptr && words_.node().route(*here) == RouteKind::kCma) [[likely]]
      return cma_;
    return other_route();
  }
  MappedRoute& mapped_route() { return mapped_; }
  // By which some rank needs an endpoint; null if none does.
  FabricRoute* fabric_route() const { return fabric_.get(); }
  ControlWords& words() { return words_; }
  const ControlWords& words() const { return words_; }

  // The bytes of a rank's data, 0 in a dynamic space, and its unit. One round trip at the first call for a rank on
  // another node, if the ranks differ in them; then nothing. Errors: kPeer.
  using Extent = Route::Extent;
  Result<Extent> extent(int target);
  // The target if operations on its data are loads and stores of this process (self, mapped). Null for others, and for
  // some placements of ranks (NodeTargets::find_regular).
  const NodeTarget* fast_target(int target) const {
    const NodeTarget* const here = words_.node().find_regular(target);
    return here != nullptr && here->data != nullptr ? here : nullptr;
  }
  // A rank's data where the application of this process may load and store them, whatever the route of operations is.
  // `base` is null and `bytes` is 0 if this process does not map them: data of a rank on another node, and private
  // memory of an on-node peer. `base` is also null if there are no bytes, unless the data are contiguous with others.
  struct MappedData {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t unit = 1;  // the rank's, if it is on this node
  };
  MappedData mapped_data(int target) const;
  // Returns the lowest rank of all, on any node, whose Request::data_bytes is above 0; -1 if there is none.
  int lowest_rank_with_data() const { return lowest_with_data_; }

  // As in Route.
  Status flush_all(bool locally = false);
  // Whether operations towards the target are complete when they return, for the fast path: false also for some
  // placements of ranks (NodeTargets::find_regular).
  bool fast_immediate(int target) const { return words_.all_immediate() || fast_target(target) != nullptr; }
  // The puts that are queued, of this rank. If some may exist, of this rank or towards it, flushes and releases have
  // more to do than Route::immediate() says.
  CmaRoute& queued_puts() { return cma_; }
  bool may_queue_puts() const { return may_queue_puts_; }
  // Executes what peers have posted. Three loads if nothing was posted.
  void finish_puts() const {
    if (node_handler_ != nullptr) [[unlikely]]
      node_handler_->finish_posted();
  }
  // In a space of two ranks, returns the other rank if all accesses to its data by this rank go over the fabric, and
  // messages to its handler carry control steps. Otherwise returns -1.
  int only_peer() {
    const int peer = 1 - rank_;
    return ranks_ == 2 && !shared_ && words_.changed_by_cpu() && !route(peer).immediate() ? peer : -1;
  }
  // The way to defer a lock of the target; null if there is none. Not where this process maps the target's data: the
  // lock may protect loads and stores (MPI 4.1 section 12.5.3).
  FabricControl* deferred_locks(int target);

 private:
  friend class SpaceMaker;
  explicit Space(const Request& request);
  Route& other_route();

  std::unique_ptr<OperationCounts> counts_;
  const int rank_;
  const int ranks_;
  const std::uint64_t id_;
  std::byte* data_ = nullptr;
  int lowest_with_data_ = -1;
  const bool shared_;
  bool contiguous_ = false;
  bool may_queue_puts_ = false;
  NodeSegment segment_;
  std::shared_ptr<const void> exposed_;  // ShareableMemory::Place::users
  ControlWords words_;
  MappedRoute mapped_;
  CmaRoute cma_;
  NodeHandler* node_handler_ = nullptr;  // that serves this space to on-node peers
  std::unique_ptr<Regions> regions_;
  std::unique_ptr<FabricRoute> fabric_;  // null if no rank needs the fabric; uses regions_
};

}  // namespace farside
