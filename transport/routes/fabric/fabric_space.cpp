// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/fabric/fabric_space.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "transport/base/log.hpp"

namespace farside {
namespace {

// The keys of a space's memory, where processes choose them. Only the ranks of the space know its id.
constexpr std::uint64_t kControlKey = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kDataKey = 0xc2b2ae3d27d4eb4f;

}  // namespace

FabricSpace::FabricSpace(const Setup& setup)
    : endpoint(setup.endpoint),
      waiting(setup.waiting),
      wake_event(setup.wake_event),
      rank(setup.rank),
      id(setup.space),
      targets(setup.threaded) {}

FabricSpace::~FabricSpace() {
  if (published) endpoint.withdraw(id);
}

Status FabricSpace::register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes,
                                    std::uint32_t unit) {
  Result<Endpoint::Registration> control =
      endpoint.register_memory(space.control, space.control_bytes, id ^ kControlKey);
  if (!control) return control.error();
  control_region = std::move(control.value().region);
  own.control_key = control.value().key;
  if (space.attached == nullptr && data_bytes > 0) {
    Result<Endpoint::Registration> data = endpoint.register_memory(space.base, data_bytes, id ^ kDataKey);
    if (!data) return data.error();
    data_region = std::move(data.value().region);
    own.data_key = data.value().key;
  }
  own.bytes = space.attached == nullptr ? data_bytes : 0;
  own.unit = unit;
  MessageHandler::ServedSpace served = space;
  static_assert(sizeof own <= sizeof served.description);
  std::memcpy(served.description.data(), &own, sizeof own);
  served.description_bytes = sizeof own;
  if (!endpoint.publish(id, served)) return Error{ErrorKind::kOther, "another window of this process has the same id"};
  published = true;
  return {};
}

void FabricSpace::agree(Agreed with_all) {
  agreed = std::move(with_all);
  all_alike = agreed.same_bytes && agreed.same_units && endpoint.keys_are_chosen();
}

// A rank is added at its first use. Its description follows when its data are used.
Result<FabricTarget*> FabricSpace::reach(int to) {
  if (FabricTarget* known = targets.find(to)) [[likely]]
    return known;
  const Peer peer = endpoint.insert(agreed.addresses.of(to));
  return &targets.add(to, peer, all_alike ? &own : nullptr);
}

Result<FabricTarget*> FabricSpace::describe(int to) {
  Result<FabricTarget*> reached = reach(to);
  if (!reached) return reached;
  FabricTarget& target = *reached.value();
  if (target.description != 0) return &target;
  TargetDescription description;
  Pending pending;
  pending.towards(to);
  Status asked =
      endpoint.ask_for_description(pending, handler_of(target), std::as_writable_bytes(std::span(&description, 1)));
  if (asked) asked = wait_for(pending);
  if (!asked) return asked.error();
  targets.describe(target, description);
  return &target;
}

Result<Route::Extent> FabricSpace::extent(int to) {
  if (agreed.same_bytes && agreed.same_units) return Route::Extent{own.bytes, own.unit};
  const Result<FabricTarget*> target = describe(to);
  if (!target) return target.error();
  const TargetDescription description = targets.description(*target.value());
  return Route::Extent{description.bytes, description.unit};
}

Result<FabricTargets::Use> FabricSpace::use(int to) {
  const Result<FabricTarget*> target = describe(to);
  if (!target) return target.error();
  return FabricTargets::Use(targets, *target.value(), to);
}

Result<FabricSpace::Keyed> FabricSpace::keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes) {
  if (agreed.regions == nullptr) [[likely]]
    return Keyed{targets.description(*to.target).data_key, offset, bytes};
  const std::uint64_t address = agreed.first_address + offset;
  const Result<Region> region = agreed.regions->find(to.rank, address);
  if (!region) return region.error();
  return Keyed{region.value().key, address - region.value().address, std::min(bytes, region.value().end() - address)};
}

QueuedOperations FabricSpace::take_queued(BusyTarget& to, bool even_nothing) {
  for (Waiter waiter(waiting, wake_event);; waiter.pause()) {
    const auto held = targets.hold(*to.target);
    if (std::optional<QueuedOperations> taken = to.order.take(even_nothing)) return std::move(*taken);
  }
}

void FabricSpace::queued_sent(BusyTarget& to, QueuedOperations sent) {
  const auto held = targets.hold(*to.target);
  to.order.sent(std::move(sent));
}

void FabricSpace::drop_queued(BusyTarget& to) {
  const auto held = targets.hold(*to.target);
  to.order.drop();
}

void FabricSpace::await_end(const Pending& pending) {
  for (Waiter waiter(waiting, wake_event); !pending.done();) waiter.pause();
}

void FabricSpace::await_writes(Pending& writes, Peer peer) {
  if (!agreed.rules.by_nic) return await_end(writes);
  // Another thread may begin a run while this one waits.
  constexpr std::uint32_t kAgain = 8;
  Waiter waiter(waiting, wake_event);
  for (std::uint32_t rounds = 0; !writes.done(); ++rounds) {
    if (rounds % kAgain == 0) endpoint.end_run(writes, peer);
    waiter.pause();
  }
}

Status FabricSpace::wait_for(Pending& pending) {
  await_end(pending);
  return pending.take_error();
}

}  // namespace farside
