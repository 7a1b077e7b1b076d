// SPDX-License-Identifier: BSD-3-Clause
// FabricSpace: what the parts of a FabricRoute share: the ranks of a space as the endpoint reaches them, the keys of
// their memory, and waits.
//
// The entry of a rank is made at the first operation on it, with the address from the table. If keys, sizes or units
// are not the same on all ranks, the rank's description is requested from its handler, in one round trip.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/address_table.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/handler/attached_regions.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"
#include "transport/routes/mapped/mapped_route.hpp"

namespace farside {

struct FabricSpace {
  // `waiting`, `wake_event`: how a thread of this process waits. `space`: its id at all handlers.
  struct Setup {
    Endpoint& endpoint;
    Progress& waiting;
    WakeEvent& wake_event;
    int rank = 0;
    std::uint64_t space = 0;
    bool threaded = true;  // several threads may be in calls at once
  };
  // What all ranks have agreed on. Precondition of all operations.
  struct Agreed {
    PeerAddresses addresses;
    AccumulateRules rules;
    bool same_bytes = false;  // of data, on all ranks
    bool same_units = false;
    RegionFinder* regions = nullptr;  // of a dynamic space
    std::uint64_t first_address = 0;  // of its data: an offset plus this is an address
  };
  // The part of a range of a rank's data that one key gives access to: all of it, unless a region ends before.
  struct Keyed {
    RemoteKey key;
    std::uint64_t offset = 0;  // from the start of the key's memory
    std::size_t bytes = 0;
  };

  explicit FabricSpace(const Setup& setup);
  FabricSpace(const FabricSpace&) = delete;
  FabricSpace& operator=(const FabricSpace&) = delete;
  ~FabricSpace();
  Status register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes, std::uint32_t unit);
  void agree(Agreed with_all);

  Result<FabricTarget*> reach(int rank);
  Result<FabricTarget*> describe(int rank);
  Result<FabricTargets::Use> use(int rank);
  Result<Route::Extent> extent(int rank);
  Result<Keyed> keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes);
  // Calls transfer(place, bytes done before, bytes) for each part of the range that has one key.
  template <class Transfer>
  Status by_keys(const BusyTarget& to, std::uint64_t offset, std::size_t bytes, Transfer&& transfer) {
    for (std::size_t done = 0; done < bytes;) {
      const Result<Keyed> part = keyed(to, offset + done, bytes - done);
      if (!part) return part.error();
      const Keyed& here = part.value();
      if (Status status = transfer(Endpoint::Place{to.target->peer, here.key, here.offset}, done, here.bytes); !status)
        return status;
      done += here.bytes;
    }
    return {};
  }
  HandlerPlace handler_of(const FabricTarget& to) const { return {to.peer, id, static_cast<std::uint32_t>(rank)}; }
  // An address with the alignment of this offset at the target. With chosen keys the base is unknown, and such
  // endpoints have no adapter atomics.
  const void* place_of(const FabricTarget& to, std::uint64_t offset) const {
    const std::uint64_t address = targets.description(to).data_key.base + offset;
    return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

  QueuedOperations take_queued(BusyTarget& to, bool even_nothing);
  void queued_sent(BusyTarget& to, QueuedOperations sent);
  void drop_queued(BusyTarget& to);

  void await_end(const Pending& pending);  // leaves the error in `pending`
  // The same for writes that may be in runs.
  void await_writes(Pending& writes, Peer peer);
  Status wait_for(Pending& pending);

  Endpoint& endpoint;
  Progress& waiting;
  WakeEvent& wake_event;
  const int rank;
  bool published = false;
  bool all_alike = false;  // all ranks have the description `own`, and none needs to be asked for it
  const std::uint64_t id;
  decltype(Registration::region) control_region, data_region;
  TargetDescription own;
  Agreed agreed;
  FabricTargets targets;
};

// Accumulates of 64-bit integers in the atomicity domain nic, by atomics of the target's adapter. Elements of a sum
// are one fetch-add each, issued without waiting. Operations for which adapters have no atomic use compare-and-swaps,
// and wait for them.
class NicAtomics final : public AdapterAtomics {
 public:
  explicit NicAtomics(FabricSpace& space) : space_(space) {}
  Status issue(BusyTarget& to, Pending& among, const DataOperation& operation);
  void atomic_at(int rank, const DataOperation& operation) override;

 private:
  Status combine_elements(BusyTarget& to, const DataOperation& operation);
  Status control_element(BusyTarget& to, Pending& among, ControlCall call, std::uint64_t offset,
                         const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched);

  FabricSpace& space_;
};

// Steps on control words, and deferred locks, which are for processes with one thread.
class FabricControl final : public ControlRoute, public DeferredLocks {
 public:
  explicit FabricControl(FabricSpace& space) : space_(space), first_interruptions_(space.endpoint.interruptions()) {}
  Status control(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                 const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) override;
  Status notify(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                const std::uint64_t* operand, std::uint64_t* fetched) override;
  void post_received(int rank) override;
  std::uint32_t lost_notifications(int rank) const override;
  std::uint32_t interruptions() const override { return space_.endpoint.interruptions(); }
  std::uint32_t first_interruptions() const override { return first_interruptions_; }
  bool interrupted_since(int rank, std::uint32_t interruptions) override;
  bool interrupted_since_post(int rank) override;
  bool reached(int rank) const override { return space_.targets.find(rank) != nullptr; }
  bool may_read(int rank) override;
  Reach reach(int rank) override;
  std::vector<int> unacknowledged() override;
  Status defer(int rank, Acquire acquire) override;
  Status execute(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                 LockedResult& result) override;
  void queue_again(int rank, std::unique_ptr<OperationList> list) override;
  // Waits until the target has executed the operations that notifications have carried.
  Status confirm(BusyTarget& to);

 private:
  // `awaited`: it has a reply.
  Status behind_queued(FabricTarget& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched,
                       bool awaited);
  void end_deferral(int rank) override;
  void drop_queued(int rank) override;

  FabricSpace& space_;
  const std::uint32_t first_interruptions_;
  // At post_received(); null without a later interruption.
  std::unique_ptr<std::map<int, std::uint32_t>> interruptions_at_post_;
};

}  // namespace farside
