// SPDX-License-Identifier: BSD-3-Clause
// FabricRoute: operations on the data of the ranks that a space reaches over the fabric, and their order
// (fabric/progress.md). Its parts (fabric_space.hpp) carry steps on control words, deferred locks and, in the atomicity
// domain nic, atomics on this rank and its on-node peers.
//
// Thread safety: as FabricTargets. Errors: kPeer, kRange, kNoMemory of the endpoint. Cost: node/on-node.md; of
// flush_all() what is busy, else one load. Memory: fabric_targets.hpp.
#pragma once

#include "transport/routes/fabric/fabric_space.hpp"

namespace farside {

class FabricRoute final : public Route {
 public:
  using Setup = FabricSpace::Setup;
  using Agreed = FabricSpace::Agreed;
  explicit FabricRoute(const Setup& setup);
  // Waits for what is in flight, and withdraws the space.
  ~FabricRoute();

  // Makes this rank's memory accessible, and the handler serve it. `space.description` is filled in here. Errors:
  // kNoMemory.
  Status register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes, std::uint32_t unit) {
    return space_.register_memory(space, data_bytes, unit);
  }
  void agree(Agreed agreed);

  Endpoint& endpoint() const { return space_.endpoint; }
  const FabricTargets& targets() const { return space_.targets; }
  FabricControl& control() { return control_; }
  NicAtomics& atomics() { return atomics_; }
  // Null where locks cannot be deferred: the domain nic, and dynamic spaces: if memory was detached meanwhile, the
  // handler would not execute the release step.
  DeferredLocks* locks() { return rules_.by_nic || space_.agreed.regions != nullptr ? nullptr : &control_; }
  // The bytes of data and the unit of a rank. One round trip at the first call for a rank, if ranks differ. Errors:
  // kPeer.
  Result<Extent> extent(int rank) { return space_.extent(rank); }
  // Requests a page of a rank's table of regions, and waits for it.
  Status ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page);

  Status operate(int rank, const DataOperation& operation, Outstanding* own) override;
  std::size_t fewest_in_list(int /*rank*/, bool /*atomic*/) const override { return 2; }
  Result<bool> goes_alone(int rank, const DataOperation& operation) override;  // the rank's adapter executes it
  Status send_lists(int rank, std::span<std::unique_ptr<OperationList>> lists, Outstanding* own, bool last) override;
  // A list of fragments, like a small operation: queued under the same rules, or issued.
  Status keep(int rank, std::unique_ptr<OperationList> list);
  // Issues a list behind the queued operations.
  Status send_behind_queued(int rank, Outstanding* own, std::unique_ptr<OperationList> list);
  Result<std::unique_ptr<Outstanding>> own_outstanding(int rank) override;
  void abandon(int rank, std::unique_ptr<Outstanding> own) override;
  Status flush(int rank) override;
  Status flush_all() override;
  void expect_release(int rank) override;
  Status order_before_release(int rank) override;
  void expect_threads() override { space_.targets.expect_threads(); }

 private:
  TargetOrder::Traffic traffic(const BusyTarget& to) const { return {to.done(), to.requests.done(), rules_.by_nic}; }
  Status acquire_first(BusyTarget& to);
  Status issue_queued(BusyTarget& to);
  Status issue_before_flush(BusyTarget& to);
  Status issue(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  Status issue_parts(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  bool is_quicker_as_message(const BusyTarget& to, const Outstanding& among, const DataOperation& operation) const;
  Status issue_by_handler(BusyTarget& to, Outstanding& among, const DataOperation& operation);
  Status send_list(BusyTarget& to, Pending& among, std::unique_ptr<OperationList> list);
  Status send_behind_queued(BusyTarget& to, Outstanding* own, std::unique_ptr<OperationList> list);
  Status complete(BusyTarget& to);
  Status complete_writes(BusyTarget& to) {
    space_.await_writes(to.writes, to.target->peer);
    return to.writes.take_error();
  }

  FabricSpace space_;
  FabricControl control_;
  NicAtomics atomics_;
};

}  // namespace farside
