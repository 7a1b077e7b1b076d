// SPDX-License-Identifier: BSD-3-Clause
// The route over the fabric: FabricRoute, and its parts.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/fabric/endpoint.hpp"
#include "transport/handler/attached_regions.hpp"
#include "transport/node/node_group.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"
#include "transport/routes/mapped/mapped_route.hpp"

namespace farside {

// `waiting`, `wake_event`: how a thread of this process waits.
struct FabricSetup {
  Endpoint& endpoint;
  Progress& waiting;
  WakeEvent& wake_event;
  int rank = 0;
  std::uint64_t space = 0;  // its id at all handlers
  bool threaded = true;     // several threads may be in calls at once
};

// FabricSpace: what the parts of a FabricRoute share: the ranks of a space as the endpoint reaches them, the keys of
// their memory, and waits.
//
// The entry of a rank is made at the first operation on it, with the address from the table. If keys, sizes or units
// are not the same on all ranks, the rank's description is requested from its handler, in one round trip.
struct FabricSpace : FabricSetup {
  // The agreement of all ranks. Precondition of all operations.
  struct Agreed {
    PeerAddresses addresses;
    AccumulateRules rules;
    bool same_bytes = false;  // of data, on all ranks
    bool same_units = false;
    std::function<Result<Region>(int rank, std::uint64_t address)> regions;  // of a dynamic space: Regions::find
    std::uint64_t first_address = 0;  // of its data: an offset plus this is an address
  };
  // The part of a range of a rank's data that one key gives access to: all of it, unless a region ends before.
  struct Keyed {
    Endpoint::Place place;
    std::size_t bytes = 0;
  };

  explicit FabricSpace(const FabricSetup& setup) : FabricSetup(setup), targets(setup.threaded) {}
  ~FabricSpace() {
    if (published) endpoint.withdraw(space);
  }
  Status register_memory(const MessageHandler::ServedSpace& served, std::uint64_t data_bytes, std::uint32_t unit);
  void agree(Agreed with_all) {
    agreed = std::move(with_all);
    all_alike = agreed.same_bytes && agreed.same_units && keys_are_chosen;
  }

  // The rank's entry, which is added at its first use. Its description follows when its data are used.
  FabricTarget& entry_of(int to) {
    if (FabricTarget* known = targets.find(to)) [[likely]]
      return *known;
    return targets.add(to, endpoint.insert(agreed.addresses.of(to)), all_alike ? &own : nullptr);
  }
  // Waits for a round trip at the first call for a rank, if ranks differ (fabric_targets.hpp).
  Result<FabricTarget*> described_entry(int rank);
  Result<FabricTargets::Use> begin_use(int to) {
    const Result<FabricTarget*> target = described_entry(to);
    if (!target) return target.error();
    return FabricTargets::Use(targets, *target.value());
  }
  Result<Route::Extent> extent(int rank);
  Result<Keyed> keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes);
  // Sends a request to the target's handler.
  Status send(Pending& pending, const FabricTarget& to, HandlerRequest request, std::unique_ptr<OperationList> list) {
    return endpoint.request(pending, to.peer, std::move(request).to(space, rank), std::move(list));
  }
  RemoteKey control_key(const FabricTarget& to) const {
    if (keys_are_chosen) return own_control.key;
    const TargetDescription& description = targets.description(to);
    return {description.control_base, description.control_key};
  }
  RemoteKey data_key(const FabricTarget& to) const {
    if (keys_are_chosen) return own_data.key;
    const TargetDescription& description = targets.description(to);
    return {description.data_base, description.data_key};
  }
  // An address with the alignment of this offset at the target. With chosen keys the base is unknown, and such
  // endpoints have no adapter atomics.
  const void* place_of(const FabricTarget& to, std::uint64_t offset) const {
    return reinterpret_cast<const void*>(data_key(to).base + offset);  // NOLINT(performance-no-int-to-ptr)
  }

  // As in TargetOrder; waits while another thread issues.
  std::unique_ptr<OperationList> take_queued(BusyTarget& to, bool even_nothing);
  void queued_sent(BusyTarget& to) {
    const auto held = targets.hold(*to.target);
    to.order.sent();
  }
  void drop_queued(BusyTarget& to) {
    const auto held = targets.hold(*to.target);
    to.order.drop();
  }
  // A request whose reply implies that the earlier messages were executed. `fetched` receives a control word.
  static HandlerRequest question_behind(std::uint64_t& fetched) {
    return HandlerRequest::with({ControlCall::kRead, {}, 0, 1, 0}, &fetched);
  }
  // Sends a request as send(), and waits for the answer.
  Status ask(const FabricTarget& to, const HandlerRequest& request) {
    return wait_for(static_cast<int>(to.rank), [&](Pending& pending) { return send(pending, to, request, nullptr); });
  }
  // Issues an operation on a rank by issue(Pending&), waits for it, and returns its error.
  template <class Issue>
  Status wait_for(int to, Issue&& issue) {
    Pending pending;
    pending.towards(to);
    Status done = issue(pending);
    await(pending);
    done.keep(pending.take_error());
    return done;
  }
  // Waits until all operations are complete, or those of a class, or all but so many of them. Leaves an error there.
  void await(const Pending& pending) {
    for (Waiter waiter(waiting, wake_event); !pending.done();) waiter.pause();
  }
  void await(const Pending& pending, Pending::Class of, std::uint32_t but = 0) {
    for (Waiter waiter(waiting, wake_event); pending.count(of) > but;) waiter.pause();
  }

  bool published = false;
  bool all_alike = false;        // all ranks have the description `own`, and none needs to be asked for it
  bool keys_are_chosen = false;  // Endpoint::keys_are_chosen(), since register_memory()
  Registration own_control, own_data;
  TargetDescription own;
  Agreed agreed;
  FabricTargets targets;
};

// Steps on control words that this process does not map, and what is known of the ranks that own them; deferred locks;
// and the adapter's atomics.
class FabricControl {
 public:
  explicit FabricControl(FabricSpace& space) : space_(space), first_interruptions_(space.endpoint.interruptions()) {}

  // Issues a step. A step that ends the access to the rank's data carries the queued operations for the rank (in the
  // domain cpu). `fetched` stays in use until `pending` is done. Not `awaited`: as a notification, which is a fetch-add
  // or a write, and `pending` is done when it is sent. The operations that a notification carries are complete at the
  // rank before the word changes. RDMA that is issued later waits until the rank has confirmed these operations, in one
  // round trip, unless post_received() was called before.
  Status control(const ControlStep& step, DataAccess access, int rank, Pending& pending, std::uint64_t* fetched,
                 bool awaited = true);
  // To be called when a post of the rank has arrived. The rank posts only after it has executed all earlier
  // notifications.
  void post_received(int rank);
  // Interruptions: the ends of connections by which notifications of peers may have been lost (Endpoint). A wait for a
  // notification ends with an error if the connection to the sender was interrupted after the earliest moment at which
  // the sender could have sent the notification. Their number, one load; when the space was made, before any rank could
  // send one; and at the last post_received(), or else when the space was made.
  std::uint32_t interruptions() const { return space_.endpoint.interruptions(); }
  std::uint32_t first_interruptions() const { return first_interruptions_; }
  std::uint32_t interruptions_at_post(int rank) const {
    const auto found = interruptions_at_post_.find(rank);
    return found != interruptions_at_post_.end() ? found->second : first_interruptions_;
  }
  const PeerLosses& losses(int rank) const { return space_.endpoint.losses(space_.entry_of(rank).peer); }

  // For reports. Whether operations have reached the rank; another one may have to be connected first.
  bool reached(int rank) const { return space_.targets.find(rank) != nullptr; }
  // Returns whether a read of a rank's control word waits neither for an earlier operation nor for a description of the
  // rank, and does not take the error of lost notifications from a later operation. False if the rank has no entry or
  // no connection.
  bool may_read(int rank);
  // As Endpoint::reach().
  Result<bool> reach(int rank) { return space_.endpoint.reach(space_.entry_of(rank).peer); }
  // The ranks that have not acknowledged all operations, in no order.
  std::vector<int> unacknowledged() {
    std::vector<int> ranks;
    space_.targets.for_each_busy([&](FabricTargets::Use& use) {
      if (!use->done()) ranks.push_back(use->rank);
    });
    return ranks;
  }

  // A deferred lock travels with the operations of its epoch, in a process with one thread. The operations are queued
  // behind the lock; before the first one that cannot wait, `acquire` takes the lock. The deferral ends by `acquire`,
  // or by take() or execute().
  Status defer(int rank, TargetOrder::Acquire acquire) {
    const Result<FabricTargets::Use> used = space_.begin_use(rank);
    if (!used) return used.error();
    const auto held = space_.targets.hold(*used.value()->target);
    used.value()->order.defer(std::move(acquire));
    return {};
  }
  // Ends the deferral: `acquire` takes the lock by itself, while the queued operations stay queued. If it fails, they
  // are dropped.
  template <class Take>
  auto take(int rank, Take&& acquire) {
    const FabricTargets::Use use(space_.targets, *space_.targets.find(rank));
    (void)use->order.end_deferral();
    auto taken = acquire();
    if (!taken) space_.drop_queued(*use);
    return taken;
  }
  // Sends one message with the acquire step, the queued operations and the release step, and waits for its reply. If
  // the acquire step stops it, only the ticket is taken: the caller must wait for the lock, and `result` has the
  // operations.
  Status execute(int rank, const ControlStep& acquire_step, const ControlStep& release_step, LockedResult& result);
  // Queues the operations of such a result again. The caller now holds the lock, and they travel with its release.
  void queue_again(int rank, std::unique_ptr<OperationList> list) {
    const FabricTargets::Use use(space_.targets, *space_.targets.find(rank));
    const auto held = space_.targets.hold(*use->target);
    use->order.queue_again(std::move(list));
  }

  // Waits until the target has executed the operations that notifications have carried.
  Status confirm(BusyTarget& to);

  // Accumulates of 64-bit integers in the atomicity domain nic, by atomics of the target's adapter. Elements of a sum
  // are one fetch-add each, issued without waiting. Operations for which adapters have no atomic use compare-and-swaps,
  // and wait for them.
  Status by_adapter(BusyTarget& to, Pending& among, const DataOperation& operation);
  // On mapped memory (MappedRoute): complete when it returns, and errors are logged.
  void atomic_at(int rank, const DataOperation& operation);
  // The same on a control word: adds 1.
  Status increment_by_adapter(BusyTarget& to, std::uint32_t word, std::uint32_t last_interruption);
  // Sends a step in one message with the queued operations; in the domain cpu. `pending`: the target's own in notified
  // access, of which a flush asks whether it was executed. `after`: HandlerRequest::last_interruption, of a
  // notification.
  Status send_behind(BusyTarget& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched, bool awaited,
                     std::optional<std::uint32_t> after = {});

 private:
  Status combine_element(BusyTarget& to, const DataOperation& operation, std::size_t index);
  Status control_element(BusyTarget& to, Pending& among, std::uint64_t offset, const ControlStep& step,
                         std::uint64_t* fetched);

  FabricSpace& space_;
  const std::uint32_t first_interruptions_;
  std::map<int, std::uint32_t> interruptions_at_post_;  // by rank; without those that are the first
};

// FabricRoute: operations on the data of the ranks that a space reaches over the fabric, and their order
// (fabric/progress.md). Its parts carry steps on control words, deferred locks and, in the atomicity
// domain nic, atomics on this rank and its on-node peers.
//
// Thread safety: as FabricTargets. Errors: kPeer, kRange, kNoMemory of the endpoint. Cost: node/on-node.md; of
// flush_all() what is busy, else one load. Memory: fabric_targets.hpp.
class FabricRoute final : public Route {
 public:
  using Setup = FabricSetup;
  using Agreed = FabricSpace::Agreed;
  explicit FabricRoute(const Setup& setup) : Route(RouteKind::kFabric, setup.rank), space_(setup), control_(space_) {}
  // Waits for what is in flight, and withdraws the space.
  ~FabricRoute();

  // Makes this rank's memory accessible, and the handler serve it. `space.description` is filled in here. Errors:
  // kNoMemory.
  Status register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes, std::uint32_t unit) {
    return space_.register_memory(space, data_bytes, unit);
  }
  void agree(Agreed agreed) {
    take_rules(agreed.rules);
    space_.agree(std::move(agreed));
  }

  Endpoint& endpoint() const { return space_.endpoint; }
  const FabricTargets& targets() const { return space_.targets; }
  FabricControl& control() { return control_; }
  // Null where locks cannot be deferred: the domain nic, and dynamic spaces: if memory was detached meanwhile, the
  // handler would not execute the release step.
  FabricControl* locks() { return rules_.by_nic || space_.agreed.regions != nullptr ? nullptr : &control_; }
  // The bytes of data and the unit of a rank. One round trip at the first call for a rank, if ranks differ. Errors:
  // kPeer.
  Result<Extent> extent(int rank) { return space_.extent(rank); }

  Status operate(int rank, const DataOperation& operation, Pending* own) override;
  std::size_t fewest_in_list(int /*rank*/, bool /*atomic*/) const override { return 2; }
  Result<bool> goes_alone(int rank, const DataOperation& operation) override;  // the rank's adapter executes it
  Status ask_for_regions(int rank, std::uint64_t address, std::span<std::byte> regions) override {
    return space_.ask(space_.entry_of(rank), HandlerRequest::question(MessageKind::kRegions, regions, address));
  }
  Status send_lists(int rank, std::span<std::unique_ptr<OperationList>> lists, Pending* own, bool last) override;
  Result<std::unique_ptr<Pending>> own_pending(int rank) override;
  void abandon(int rank, std::unique_ptr<Pending> own) override;
  Status flush(int rank, bool locally = false) override;
  Status flush_all(bool locally = false) override;
  void expect_release(int rank) override { expect(rank, false); }
  Status order_before_release(int rank) override;
  // Notified access: adds 1 to a control word behind the operations on the rank's data, for which it may wait: gets by
  // RDMA, or in the domain nic messages. A flush of the rank completes it, and returns its error. A small operation
  // behind expect_notification() travels in one message with it. `last_interruption`: what that returned. If there was
  // one since, or an operation has failed, nothing is added.
  std::uint32_t expect_notification(int rank) {
    if (!rules_.by_nic) expect(rank, true);
    return space_.endpoint.losses(space_.entry_of(rank).peer).last_interruption;
  }
  Status notify(int rank, std::uint32_t word, std::uint32_t last_interruption);
  void expect_threads() override { space_.targets.expect_threads(); }

 private:
  TargetOrder::Traffic traffic(const BusyTarget& to) const {
    return {to.done(), to.done(Pending::kMessages), rules_.by_nic};
  }
  Status acquire_first(BusyTarget& to);
  Status issue(BusyTarget& to, Pending& among, const DataOperation& operation);
  Status put_or_get(BusyTarget& to, Pending& among, const DataOperation& operation);
  Status send_as_messages(BusyTarget& to, Pending& among, const DataOperation& operation);
  Status send_list(BusyTarget& to, Pending& among, std::unique_ptr<OperationList> list);
  Status issue_queued(BusyTarget& to);
  void expect(int rank, bool notification);
  Status ask_behind_notifications(BusyTarget& to);
  Status begin_flush(BusyTarget& to, bool locally);
  Status complete(BusyTarget& to, bool locally = false);

  FabricSpace space_;
  FabricControl control_;
};

}  // namespace farside
