// SPDX-License-Identifier: BSD-3-Clause
// FabricRoute: operations on the data and control words of the ranks that a space reaches over the fabric, and their
// order (fabric/progress.md). In the atomicity domain nic it also carries out the
// atomics on this rank and its on-node peers.
//
// The entry of a rank is made at the first operation on it, with the address from the directory. If keys, sizes or
// units are not the same on all ranks, the rank's description is requested from its handler, in one round trip.
//
// Thread safety: as FabricTargets, except deferred locks, which are for processes with one thread. Errors: kPeer,
// kRange, kNoMemory of the endpoint. Cost: node/on-node.md; of flush_all() what is busy, else
// one load. Memory: fabric_targets.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "transport/base/remote_memory.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/address_table.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/second_rail.hpp"
#include "transport/handler/attached_regions.hpp"
#include "transport/routes/accumulate_rules.hpp"
#include "transport/routes/fabric_targets.hpp"

namespace farside {

// The attached regions of a dynamic space's ranks (space/regions.hpp).
class RegionFinder {
 public:
  // Returns the region that holds this byte of a rank's memory. Errors: kRange, or those of reading the table.
  virtual Result<Region> find(int rank, std::uint64_t address) = 0;

 protected:
  ~RegionFinder() = default;
};

class FabricRoute {
 public:
  // `waiting`, `wake_event`: how a thread of this process waits. `space`: its id at all handlers.
  struct Setup {
    Endpoint& endpoint;
    Progress& waiting;
    WakeEvent& wake_event;
    Statistics& statistics;
    int rank = 0;
    std::uint64_t space = 0;
    bool threaded = true;  // several threads may be in calls at once
  };
  explicit FabricRoute(const Setup& setup);
  FabricRoute(const FabricRoute&) = delete;
  FabricRoute& operator=(const FabricRoute&) = delete;
  // Waits for what is under way, and withdraws the space.
  ~FabricRoute();

  // Makes this rank's memory accessible, and the handler serve it. `space.description` is filled in here. Errors:
  // kNoMemory, but not for the second rail, which is then not used.
  Status register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes, std::uint32_t unit);

  // Before agree(): returns whether this rank's memory permits that halves of large transfers use the second rail of
  // the endpoint. After agree(): returns whether they use it. False in dynamic spaces.
  bool uses_second_rail() const { return rail_ != nullptr && rail_->why_not.empty(); }
  // Why its memory could not be registered with the second rail; else empty. Before agree().
  std::string why_one_rail() const { return rail_ != nullptr ? rail_->why_not : std::string(); }

  // What all ranks have agreed on. Precondition of all operations.
  struct Agreed {
    PeerAddresses addresses;
    AccumulateRules rules;
    bool same_bytes = false;  // of data, on all ranks
    bool same_units = false;
    bool second_rails = false;        // uses_second_rail() holds on all ranks
    RegionFinder* regions = nullptr;  // of a dynamic space
    std::uint64_t first_address = 0;  // of its data: an offset plus this is an address
  };
  void agree(Agreed agreed);
  void count_in(OperationCounts* counts) { counts_ = counts; }
  // As FabricTargets::expect_threads().
  void expect_threads() { targets_.expect_threads(); }
  Endpoint& endpoint() const { return endpoint_; }

  // The bytes of data and the unit of a rank. One round trip at the first call for a rank, if ranks differ. Errors:
  // kPeer.
  struct Extent {
    std::uint64_t bytes = 0;
    std::uint32_t unit = 0;
  };
  Result<Extent> extent(int rank);

  // Returns whether the rank's adapter executes the operation. Errors: those of extent().
  Result<bool> by_nic(int rank, const DataOperation& operation);
  // Returns when the operation is issued or kept. `own`: see own_outstanding().
  Status operate(int rank, const DataOperation& operation, Outstanding* own);
  // An atomic on mapped memory in the domain nic: complete when it returns, and errors are logged.
  void atomic_at(int rank, const DataOperation& operation);
  // A list of fragments, like a small operation: kept under the same rules, or issued.
  Status keep(int rank, std::unique_ptr<OperationList> list);
  // Issues a list behind the kept operations.
  Status send_behind_kept(int rank, Outstanding* own, std::unique_ptr<OperationList> list);
  // Returns a counter for request-based operations on the rank.
  Result<std::unique_ptr<Outstanding>> own_outstanding(int rank);
  // Abandons the operations of `own`: a flush of the rank returns their errors.
  void abandon(int rank, std::unique_ptr<Outstanding> own);

  // Wait until all operations are complete at the rank, or at all ranks; return the first error among them.
  Status flush(int rank);
  Status flush_all();
  // Announces the fetch-add that ends an epoch: small operations are kept until then.
  void expect_release(int rank);
  // Waits for the operations that this fetch-add would overtake if it were issued next.
  Status order_before_release(int rank);

  // Deferred locks (TargetOrder).
  bool may_defer_lock() const { return !agreed_.rules.by_nic && agreed_.regions == nullptr; }
  Status defer_lock(int rank, TargetOrder::Acquire acquire);
  template <class Take>
  auto acquire_deferred_lock(int rank, Take&& take) {
    const FabricTargets::Use use(targets_, *targets_.find(rank));
    (void)use->order.end_deferral();
    auto taken = take();
    if (!taken) drop_kept(*use);
    return taken;
  }
  // One message with the acquire step, the kept operations and the release step, and its reply. If the acquire step
  // stops it, `result` has the operations.
  Status execute_locked(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result);
  void keep_again(int rank, std::unique_ptr<OperationList> list);

  // Issues a step on a control word. A step that ends the access to the rank's data carries the kept operations for the
  // rank (in the domain cpu). The operands are copied; `fetched` stays in use until `pending` is done.
  Status control(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                 const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched);
  // The same as a notification (Endpoint::notify), which is a fetch-add or a write: `pending` is done when it is sent.
  // The operations that it carries are complete at the rank before the word changes. RDMA that is issued later waits
  // until the rank has confirmed these operations, in one round trip, unless post_received() was called before.
  Status notify(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                const std::uint64_t* operand, std::uint64_t* fetched);
  // To be called when a post of the rank has arrived. The rank posts only after it has executed all earlier
  // notifications.
  void post_received(int rank);
  // How often notifications to the rank may have been lost with its connection.
  std::uint32_t lost_notifications(int rank) const {
    if (endpoint_.interruptions() == 0) [[likely]]
      return 0;
    const FabricTarget* const target = targets_.find(rank);
    return target != nullptr ? endpoint_.lost_notifications(target->peer) : 0;
  }
  // Return whether notifications of the rank may have been lost after so many interruptions (Endpoint), or since the
  // last post_received() or the creation of the space. Cost: one load if there was no later interruption at all.
  bool interrupted_since(int rank, std::uint32_t interruptions);
  bool interrupted_since_post(int rank);
  // The interruptions when the space was made, before any rank could send a notification.
  std::uint32_t first_interruptions() const { return first_interruptions_; }
  // Requests a page of a rank's table of regions, and waits for it.
  Status ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page);

  const FabricTargets& targets() const { return targets_; }
  // The ranks that have not acknowledged all operations, in no order.
  std::vector<int> unacknowledged();
  // See Endpoint.
  Endpoint::Reach reach_over_fabric(int rank);
  // Returns whether a read of a rank's control word waits neither for an earlier operation nor for a description of the
  // rank, and does not take the error of lost notifications from a later operation. False if the rank has no entry or
  // no connection.
  bool may_read_control_word(int rank);

 private:
  // The part of a range of a rank's data that one key gives access to: all of it, unless a region ends before.
  struct Keyed {
    RemoteKey key;
    std::uint64_t offset = 0;  // from the start of the key's memory
    std::size_t bytes = 0;
  };
  void register_at_second_rail(std::byte* base, std::size_t bytes, std::uint64_t wanted_key);
  Result<FabricTarget*> reach(int rank);
  Result<FabricTarget*> describe(int rank);
  Result<FabricTargets::Use> use(int rank);
  Result<Keyed> keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes);
  // Calls transfer(place, bytes done before, bytes) for each part of the range that has one key.
  template <class Transfer>
  Status by_keys(const BusyTarget& to, std::uint64_t offset, std::size_t bytes, Transfer&& transfer);
  TargetOrder::Traffic traffic(const BusyTarget& to) const {
    return {to.done(), to.requests.done(), agreed_.rules.by_nic};
  }
  HandlerPlace handler_of(const FabricTarget& to) const { return {to.peer, space_, static_cast<std::uint32_t>(rank_)}; }
  // An address with the alignment of this offset at the target. With chosen keys the base is unknown, and such
  // endpoints have no adapter atomics.
  const void* place_of(const FabricTarget& to, std::uint64_t offset) const {
    const std::uint64_t address = targets_.description(to).data_key.base + offset;
    return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  KeptOperations take_kept(BusyTarget& to, bool even_nothing);
  void kept_sent(BusyTarget& to, KeptOperations sent);
  void drop_kept(BusyTarget& to);
  Status acquire_first(BusyTarget& to);
  Status issue_kept(BusyTarget& to);
  Status issue_before_flush(BusyTarget& to);
  Status issue(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  Status issue_parts(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  Status issue_by_second_rail(BusyTarget& to, Pending& among, const DataOperation& operation, std::size_t begin);
  bool is_quicker_as_message(const BusyTarget& to, const Outstanding& among, const DataOperation& operation) const;
  Status issue_by_handler(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  Status send_list(BusyTarget& to, Pending& among, std::unique_ptr<OperationList> list);
  Status send_behind_kept(BusyTarget& to, Outstanding* own, std::unique_ptr<OperationList> list);
  Status complete(BusyTarget& to);
  // `awaited`: it has a reply.
  Status control_behind_kept(FabricTarget& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched,
                             bool awaited);
  Status confirm(BusyTarget& to);
  // Accumulates by the adapter (fabric_route_nic.cpp).
  Status atomic_by_nic(BusyTarget& to, Pending& among, const DataOperation& operation);
  Status combine_by_nic(BusyTarget& to, const DataOperation& operation);
  Status control_element(BusyTarget& to, Pending& among, ControlCall call, std::uint64_t offset,
                         const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched);
  Status wait_for(Pending& pending);
  Status wait_for_writes(BusyTarget& to);
  Status complete_second_rail(BusyTarget& to);
  void await_end(const Pending& pending);  // leaves the error in `pending`
  // The same for writes that may be in runs.
  void await_writes(Pending& writes, Peer peer);

  Endpoint& endpoint_;
  Progress& waiting_;
  WakeEvent& wake_event_;
  Statistics& statistics_;
  const int rank_;
  const std::uint64_t space_;
  const std::uint32_t first_interruptions_;
  // At post_received(); null without a later interruption.
  std::unique_ptr<std::map<int, std::uint32_t>> interruptions_at_post_;
  FabricHandle<fid_mr> control_, data_;  // registrations; own_ has their keys
  // What this space has of the second rail; null if it is not used.
  struct RailUse {
    SecondRail& rail;
    FabricHandle<fid_mr> data;  // its registration there
    std::string why_not;        // the registration failed
  };
  std::unique_ptr<RailUse> rail_;
  TargetDescription own_;
  Agreed agreed_;
  bool published_ = false;
  bool all_alike_ = false;  // all ranks have the description own_, and none needs to be asked for it
  OperationCounts* counts_ = nullptr;
  FabricTargets targets_;
};

}  // namespace farside
