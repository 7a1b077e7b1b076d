// SPDX-License-Identifier: BSD-3-Clause
// The entries of ranks, the coalescing of operations, and the waits of a release and a flush. Control words:
// fabric_route_control.cpp; adapter atomics: fabric_route_nic.cpp; the second device: fabric_route_second_rail.cpp.
#include "transport/routes/fabric_route.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace farside {
namespace {

// The keys of a space's memory, where processes choose them. Only the ranks of the space know its id.
constexpr std::uint64_t kControlKey = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kDataKey = 0xc2b2ae3d27d4eb4f;

}  // namespace

FabricRoute::FabricRoute(const Setup& setup)
    : endpoint_(setup.endpoint),
      waiting_(setup.waiting),
      wake_event_(setup.wake_event),
      statistics_(setup.statistics),
      rank_(setup.rank),
      space_(setup.space),
      first_interruptions_(setup.endpoint.interruptions()),
      targets_(setup.threaded) {}

FabricRoute::~FabricRoute() {
  // After an error the caller may not have flushed. The endpoint still uses operations that are under way: each
  // completes, or its peer is abandoned. Kept operations belong to an epoch that never ended, and are dropped.
  targets_.for_each_busy([this](FabricTargets::Use& use) {
    drop_kept(*use);
    (void)complete(*use);
  });
  if (published_) endpoint_.withdraw(space_);
}

Status FabricRoute::register_memory(const MessageHandler::ServedSpace& space, std::uint64_t data_bytes,
                                    std::uint32_t unit) {
  Result<Endpoint::Registration> control =
      endpoint_.register_memory(space.control, space.control_bytes, space_ ^ kControlKey);
  if (!control) return control.error();
  control_ = std::move(control.value().region);
  own_.control_key = control.value().key;
  if (space.attached == nullptr && data_bytes > 0) {
    Result<Endpoint::Registration> data = endpoint_.register_memory(space.base, data_bytes, space_ ^ kDataKey);
    if (!data) return data.error();
    data_ = std::move(data.value().region);
    own_.data_key = data.value().key;
  }
  SecondRail* const rail = endpoint_.second_rail();
  if (rail != nullptr && space.attached == nullptr && rail->state() != SecondRail::State::kFailed) {
    rail_ = std::make_unique<RailUse>(RailUse{*rail, {}, {}});
    if (data_bytes >= SecondRail::kSplitFrom) register_at_second_rail(space.base, data_bytes, space_ ^ kDataKey);
  }
  own_.bytes = space.attached == nullptr ? data_bytes : 0;
  own_.unit = unit;
  MessageHandler::ServedSpace published = space;
  static_assert(sizeof own_ <= sizeof published.description);
  std::memcpy(published.description.data(), &own_, sizeof own_);
  published.description_bytes = sizeof own_;
  if (!endpoint_.publish(space_, published))
    return Error{ErrorKind::kOther, "another window of this process has the same id"};
  published_ = true;
  return {};
}

void FabricRoute::agree(Agreed agreed) {
  agreed_ = std::move(agreed);
  if (!agreed_.second_rails) rail_.reset();
  all_alike_ = agreed_.same_bytes && agreed_.same_units && endpoint_.keys_are_chosen();
}

// A rank is added at its first use. Its description follows when its data are used.
Result<FabricTarget*> FabricRoute::reach(int rank) {
  if (FabricTarget* known = targets_.find(rank)) [[likely]]
    return known;
  const Peer peer = endpoint_.insert(agreed_.addresses.of(rank));
  return &targets_.add(rank, peer, all_alike_ ? &own_ : nullptr);
}

Result<FabricTarget*> FabricRoute::describe(int rank) {
  Result<FabricTarget*> reached = reach(rank);
  if (!reached) return reached;
  FabricTarget& target = *reached.value();
  if (target.description != 0) return &target;
  TargetDescription description;
  Pending pending;
  pending.towards(rank);
  Status asked =
      endpoint_.ask_for_description(pending, handler_of(target), std::as_writable_bytes(std::span(&description, 1)));
  if (asked) asked = wait_for(pending);
  if (!asked) return asked.error();
  if (rail_ == nullptr) description.second_key = 0;  // so that the description is compact
  targets_.describe(target, description);
  return &target;
}

Result<FabricRoute::Extent> FabricRoute::extent(int rank) {
  if (agreed_.same_bytes && agreed_.same_units) return Extent{own_.bytes, own_.unit};
  const Result<FabricTarget*> target = describe(rank);
  if (!target) return target.error();
  const TargetDescription description = targets_.description(*target.value());
  return Extent{description.bytes, description.unit};
}

Result<FabricTargets::Use> FabricRoute::use(int rank) {
  const Result<FabricTarget*> target = describe(rank);
  if (!target) return target.error();
  return FabricTargets::Use(targets_, *target.value(), rank);
}

Result<FabricRoute::Keyed> FabricRoute::keyed(const BusyTarget& to, std::uint64_t offset, std::size_t bytes) {
  if (agreed_.regions == nullptr) [[likely]]
    return Keyed{targets_.description(*to.target).data_key, offset, bytes};
  const std::uint64_t address = agreed_.first_address + offset;
  const Result<Region> region = agreed_.regions->find(to.rank, address);
  if (!region) return region.error();
  return Keyed{region.value().key, address - region.value().address, std::min(bytes, region.value().end() - address)};
}

template <class Transfer>
Status FabricRoute::by_keys(const BusyTarget& to, std::uint64_t offset, std::size_t bytes, Transfer&& transfer) {
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

Status FabricRoute::ask_for_regions(int rank, std::uint64_t first, std::span<std::byte> page) {
  const Result<FabricTarget*> target = reach(rank);
  if (!target) return target.error();
  Pending pending;
  pending.towards(rank);
  if (Status asked = endpoint_.ask_for_regions(pending, handler_of(*target.value()), first, page); !asked) return asked;
  return wait_for(pending);
}

Result<bool> FabricRoute::by_nic(int rank, const DataOperation& operation) {
  if (!operation.atomic() || !agreed_.rules.integers_by_nic) return false;
  const Result<FabricTarget*> target = describe(rank);
  if (!target) return target.error();
  return agreed_.rules.nic(operation.type, place_of(*target.value(), operation.offset));
}

Status FabricRoute::operate(int rank, const DataOperation& operation, Outstanding* own) {
  if (operation.count == 0) return {};
  TargetOrder::Offer offer{operation};
  std::optional<TargetOrder::Next> next;
  if (own == nullptr && !(operation.atomic() && agreed_.rules.integers_by_nic)) {
    // Most operations of a burst join kept ones: these need no FabricTargets::Use.
    if (FabricTarget* const known = targets_.find(rank); known != nullptr && known->description != 0) {
      const auto held = targets_.hold(*known);
      if (known->busy != nullptr) {
        next = known->busy->order.offer(offer, traffic(*known->busy));
        if (*next == TargetOrder::Next::kKept) return {};
      }
    }
  }
  const Result<FabricTargets::Use> used = use(rank);
  if (!used) return used.error();
  BusyTarget& to = *used.value();
  if (operation.atomic() && agreed_.rules.nic(operation.type, place_of(*to.target, operation.offset)))
    return issue(to, own != nullptr ? *own : to, operation);
  if (own != nullptr) {
    // An accumulate keeps its order behind the kept operations; a put or get with a request may overtake them.
    Status before = operation.atomic() ? issue_kept(to) : Status();
    return before ? issue(to, *own, operation) : std::move(before);
  }
  while (true) {
    if (!next) {
      const auto held = targets_.hold(*to.target);
      next = to.order.offer(offer, traffic(to));
    }
    if (*next == TargetOrder::Next::kKept) return {};
    if (*next == TargetOrder::Next::kIssue) return issue(to, to, operation);
    next.reset();
    if (Status status = issue_kept(to); !status) return status;
  }
}

Status FabricRoute::keep(int rank, std::unique_ptr<OperationList> list) {
  const Result<FabricTargets::Use> used = use(rank);
  if (!used) return used.error();
  BusyTarget& to = *used.value();
  while (true) {
    TargetOrder::Next next{};
    {
      const auto held = targets_.hold(*to.target);
      next = to.order.offer(list, traffic(to));
    }
    if (next == TargetOrder::Next::kKept) return {};
    if (next == TargetOrder::Next::kIssue) return send_behind_kept(to, nullptr, std::move(list));
    if (Status status = issue_kept(to); !status) return status;
  }
}

KeptOperations FabricRoute::take_kept(BusyTarget& to, bool even_nothing) {
  for (Waiter waiter(waiting_, wake_event_);; waiter.pause()) {
    const auto held = targets_.hold(*to.target);
    if (std::optional<KeptOperations> taken = to.order.take(even_nothing)) return std::move(*taken);
  }
}

void FabricRoute::kept_sent(BusyTarget& to, KeptOperations sent) {
  const auto held = targets_.hold(*to.target);
  to.order.sent(std::move(sent));
}

Status FabricRoute::defer_lock(int rank, TargetOrder::Acquire acquire) {
  const Result<FabricTargets::Use> used = use(rank);
  if (!used) return used.error();
  const auto held = targets_.hold(*used.value()->target);
  used.value()->order.defer(std::move(acquire));
  return {};
}

void FabricRoute::drop_kept(BusyTarget& to) {
  const auto held = targets_.hold(*to.target);
  to.order.drop();
}

void FabricRoute::keep_again(int rank, std::unique_ptr<OperationList> list) {
  const FabricTargets::Use use(targets_, *targets_.find(rank), rank);
  KeptOperations kept;
  kept.list = std::move(list);
  const auto held = targets_.hold(*use->target);
  use->order.keep_again(std::move(kept));
}

// Called before an operation leaves.
Status FabricRoute::acquire_first(BusyTarget& to) {
  if (!to.order.deferred()) [[likely]]
    return {};
  const TargetOrder::Acquire acquire = to.order.end_deferral();
  return acquire();
}

Status FabricRoute::execute_locked(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                                   LockedResult& result) {
  const FabricTargets::Use use(targets_, *targets_.find(rank), rank);
  (void)use->order.end_deferral();
  statistics_.add(RouteKind::kFabric, Counted::kControl, 2 * sizeof acquire_step.operand, 2);
  KeptOperations taken = take_kept(*use, true);
  Pending pending;
  pending.towards(rank);
  Status status = without_bad_alloc([&] {
    if (!taken.empty()) taken.make_list();
    return endpoint_.execute_locked(pending, handler_of(*use->target), std::move(taken.list), acquire_step,
                                    release_step, result);
  });
  kept_sent(*use, std::move(taken));
  return status ? wait_for(pending) : std::move(status);
}

Status FabricRoute::issue_kept(BusyTarget& to) {
  if (to.order.deferred() && to.order.keeps_any()) [[unlikely]] {
    if (Status status = acquire_first(to); !status) return status;
  }
  KeptOperations taken = take_kept(to, false);
  if (taken.empty()) return {};
  Status status = without_bad_alloc([&] {
    return taken.list != nullptr ? send_list(to, to.requests, std::move(taken.list)) : issue(to, to, *taken.one());
  });
  kept_sent(to, std::move(taken));
  return status;
}

Status FabricRoute::issue_before_flush(BusyTarget& to) {
  {
    const auto held = targets_.hold(*to.target);
    to.order.flush_begins();
  }
  Status issued = issue_kept(to);
  // All runs end before this thread waits for one.
  if (agreed_.rules.by_nic) endpoint_.end_run(to.writes, to.target->peer);
  return issued;
}

Status FabricRoute::issue(BusyTarget& to, Outstanding& among, const DataOperation& operation) {
  if (Status status = acquire_first(to); !status) return status;
  Status issued = without_bad_alloc([&] { return issue_parts(to, among, operation); });
  if (issued) [[likely]]
    return issued;
  // An operation that is reported as failed must not touch its buffers any more, so this waits for the parts that
  // were issued. Their errors, and those of other operations, are left to the call that completes them.
  await_writes(among.writes, to.target->peer);
  for (Pending* pending : {&among.reads, &among.atomics, &among.requests, &among.second_rail}) await_end(*pending);
  return issued;
}

// The target's provider answers RDMA that is issued after a message before the handler executes the message. So an
// operation with a request of its own, which may be awaited while a large transfer follows, stays RDMA.
bool FabricRoute::is_quicker_as_message(const BusyTarget& to, const Outstanding& among,
                                        const DataOperation& operation) const {
  if (&among != &to) return false;
  if (operation.kind == OperationKind::kPut) {
    if (operation.count > kMostPutInRing) return false;
  } else if (operation.kind != OperationKind::kGet || operation.count > kMostGetInRing) {
    return false;
  }
  return endpoint_.has_message_ring(to.target->peer);
}

// Accumulates towards one target take effect in the order in which they are issued (accumulate_ordering, MPI 4.0
// section 12.7.2): requests are ordered among themselves, and so are atomics of an adapter. No element is combined by
// both: type and address at the target decide, here and at the target. Puts and gets go by RDMA, or over TCP, if they
// are small, in messages.
Status FabricRoute::issue_parts(BusyTarget& to, Outstanding& among, const DataOperation& operation) {
  const auto fragment = [](auto* buffer, std::size_t done) { return buffer + done; };
  if (to.target->unconfirmed.any() && !operation.atomic()) [[unlikely]] {
    if (Status confirmed = confirm(to); !confirmed) return confirmed;
  }
  if (is_quicker_as_message(to, among, operation)) return issue_by_handler(to, among, operation);
  const bool transfers = operation.kind == OperationKind::kPut || operation.kind == OperationKind::kGet;
  std::size_t bytes = operation.count;  // of a put or get, by the first device
  if (rail_ != nullptr && transfers && bytes >= SecondRail::kSplitFrom) [[unlikely]] {
    bytes = SecondRail::first_part(bytes);
    if (Status status = issue_by_second_rail(to, among.second_rail, operation, bytes); !status) return status;
  }
  switch (operation.kind) {
    case OperationKind::kPut:
      return by_keys(
          to, operation.offset, bytes, [&](const Endpoint::Place& place, std::size_t done, std::size_t part) {
            const std::byte* const from = fragment(static_cast<const std::byte*>(operation.origin), done);
            // Where each put leaves at once, many may be under way. A request has a Pending of its own.
            return agreed_.rules.by_nic && &among == &to ? endpoint_.write_in_run(among.writes, place, from, part)
                                                         : endpoint_.write(among.writes, place, from, part);
          });
    case OperationKind::kGet:
      return by_keys(
          to, operation.offset, bytes, [&](const Endpoint::Place& place, std::size_t done, std::size_t part) {
            return endpoint_.read(among.reads, place, fragment(static_cast<std::byte*>(operation.fetched), done), part);
          });
    case OperationKind::kAccumulate:
    case OperationKind::kCompareAndSwap: break;
  }
  const void* const address = place_of(*to.target, operation.offset);
  if (agreed_.rules.nic(operation.type, address)) return atomic_by_nic(to, among.atomics, operation);
  agreed_.rules.count_slow(counts_, operation.type, address, true);
  return issue_by_handler(to, among, operation);
}

Status FabricRoute::issue_by_handler(BusyTarget& to, Outstanding& among, const DataOperation& operation) {
  for (DataOperation rest = operation; rest.count > 0;) {
    const DataOperation part = take_part(rest);
    std::unique_ptr<OperationList> list = patiently([] { return OperationList::take_spare(); });
    patiently([&] { list->add(part); });
    if (Status status = send_list(to, among.requests, std::move(list)); !status) return status;
  }
  return {};
}

Status FabricRoute::send_behind_kept(int rank, Outstanding* own, std::unique_ptr<OperationList> list) {
  const Result<FabricTargets::Use> used = use(rank);
  return used ? send_behind_kept(*used.value(), own, std::move(list)) : Status(used.error());
}

Status FabricRoute::send_behind_kept(BusyTarget& to, Outstanding* own, std::unique_ptr<OperationList> list) {
  Status before = issue_kept(to);
  Status sent = send_list(to, own != nullptr ? own->requests : to.requests, std::move(list));
  return before ? std::move(sent) : std::move(before);
}

Status FabricRoute::send_list(BusyTarget& to, Pending& among, std::unique_ptr<OperationList> list) {
  if (Status status = acquire_first(to); !status) return status;
  // An earlier error is returned, but the list is sent all the same: its operations were accepted.
  Status before;
  if (list->has_atomics()) before = wait_for(to.atomics);
  for (Waiter waiter(waiting_, wake_event_); to.requests.count() >= kMostLists;) waiter.pause();
  Status issued = endpoint_.execute(among, handler_of(*to.target), std::move(list));
  return before ? std::move(issued) : std::move(before);
}

void FabricRoute::await_end(const Pending& pending) {
  for (Waiter waiter(waiting_, wake_event_); !pending.done();) waiter.pause();
}

void FabricRoute::await_writes(Pending& writes, Peer peer) {
  if (!agreed_.rules.by_nic) return await_end(writes);
  // Another thread may begin a run while this one waits.
  constexpr std::uint32_t kAgain = 8;
  Waiter waiter(waiting_, wake_event_);
  for (std::uint32_t rounds = 0; !writes.done(); ++rounds) {
    if (rounds % kAgain == 0) endpoint_.end_run(writes, peer);
    waiter.pause();
  }
}

Status FabricRoute::wait_for_writes(BusyTarget& to) {
  await_writes(to.writes, to.target->peer);
  return to.writes.take_error();
}

Status FabricRoute::wait_for(Pending& pending) {
  await_end(pending);
  return pending.take_error();
}

Result<std::unique_ptr<Outstanding>> FabricRoute::own_outstanding(int rank) {
  const Result<FabricTargets::Use> used = use(rank);
  if (!used) return used.error();
  {
    const auto held = targets_.hold(*used.value()->target);
    used.value()->pinned = true;
  }
  return std::make_unique<Outstanding>(static_cast<Outstanding&>(*used.value()));
}

void FabricRoute::abandon(int rank, std::unique_ptr<Outstanding> own) {
  if (own == nullptr) return;
  const FabricTargets::Use use(targets_, *targets_.find(rank), rank);
  const auto held = targets_.hold(*use->target);
  use->abandoned.push_back(std::move(own));
}

Status FabricRoute::flush(int rank) {
  FabricTarget* const target = targets_.find(rank);
  if (target == nullptr) return {};
  const FabricTargets::Use use(targets_, *target);
  return use ? complete(*use) : Status();
}

Status FabricRoute::flush_all() {
  if (!targets_.any_busy()) [[likely]]
    return {};
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  // Issues towards all targets before it waits for any.
  targets_.for_each_busy([&](FabricTargets::Use& use) { keep(issue_before_flush(*use)); });
  targets_.for_each_busy([&](FabricTargets::Use& use) { keep(complete(*use)); });
  return first;
}

std::vector<int> FabricRoute::unacknowledged() {
  std::vector<int> ranks;
  targets_.for_each_busy([&](FabricTargets::Use& use) {
    if (!use->done()) ranks.push_back(use->rank);
  });
  return ranks;
}

Endpoint::Reach FabricRoute::reach_over_fabric(int rank) {
  const Result<FabricTarget*> target = reach(rank);
  return target ? endpoint_.reach(target.value()->peer) : Endpoint::Reach{false, target.error().text};
}

bool FabricRoute::may_read_control_word(int rank) {
  const FabricTarget* const target = targets_.find(rank);
  if (target == nullptr || (agreed_.rules.by_nic && target->description == 0)) return false;
  if (endpoint_.has_loss_to_report(target->peer) || !endpoint_.reach(target->peer).connected) return false;
  bool busy = false;
  targets_.for_each_busy([&](FabricTargets::Use& use) { busy = busy || (use->rank == rank && !use->done()); });
  return !busy;
}

Status FabricRoute::complete(BusyTarget& to) {
  Status first;
  const auto keep = [&first](Status status) {
    if (!status && first) first = std::move(status);
  };
  keep(issue_before_flush(to));
  keep(wait_for_writes(to));
  for (Pending* pending : {&to.reads, &to.atomics, &to.requests}) keep(wait_for(*pending));
  keep(complete_second_rail(to));
  const auto held = targets_.hold(*to.target);
  to.order.flushed();
  std::erase_if(to.abandoned, [&](const std::unique_ptr<Outstanding>& own) {
    const bool done = own->done();
    if (done) keep(own->take_error());
    return done;
  });
  return first;
}

// An error of reaching the rank is left to the operations that follow.
void FabricRoute::expect_release(int rank) {
  (void)without_bad_alloc([&]() -> Status {
    const Result<FabricTarget*> target = reach(rank);
    if (!target) return {};
    const FabricTargets::Use use(targets_, *target.value(), rank);
    const auto held = targets_.hold(*use->target);
    use->order.expect_release();
    return {};
  });
}

Status FabricRoute::order_before_release(int rank) {
  FabricTarget* const target = targets_.find(rank);
  if (target == nullptr) return {};
  const FabricTargets::Use use(targets_, *target);
  if (!use) return {};
  BusyTarget& to = *use;
  // Errors of detached memory are to be known before the release.
  if (agreed_.regions != nullptr) return complete(to);
  Status first;
  const auto keep = [&](Status status) {
    if (!status && first) first = std::move(status);
  };
  if (agreed_.rules.by_nic) {
    // The adapter executes its atomics behind all earlier operations of the connection, but not behind requests,
    // which the handler executes, and not behind the second rail.
    keep(issue_kept(to));
    keep(wait_for(to.requests));
    keep(complete_second_rail(to));
    return first;
  }
  // The release is a message to the handler, together with the kept operations.
  if (!endpoint_.orders_messages_behind_writes()) keep(wait_for_writes(to));
  keep(wait_for(to.reads));
  keep(wait_for(to.atomics));
  keep(complete_second_rail(to));
  return first;
}

}  // namespace farside
