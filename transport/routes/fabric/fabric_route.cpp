// SPDX-License-Identifier: BSD-3-Clause
// The queue of small operations, their issue, and the waits of a release and a flush.
#include "transport/routes/fabric/fabric_route.hpp"

#include <optional>
#include <utility>

#include "transport/process.hpp"

namespace farside {

FabricRoute::~FabricRoute() {
  // After an error the caller may not have flushed. The endpoint still uses operations that are under way: each
  // completes, or its peer is abandoned. Queued operations belong to an epoch that never ended, and are dropped.
  space_.targets.for_each_busy([this](FabricTargets::Use& use) {
    space_.drop_queued(*use);
    (void)complete(*use);
  });
}

Result<bool> FabricRoute::goes_alone(int rank, const DataOperation& operation) {
  if (!operation.atomic() || !rules_.integers_by_nic) return false;
  const Result<FabricTarget*> target = space_.described_entry(rank);
  if (!target) return target.error();
  return rules_.nic(operation.type, space_.place_of(*target.value(), operation.offset));
}

Status FabricRoute::operate(int rank, const DataOperation& operation, Pending* own) {
  if (operation.count == 0) return {};
  std::optional<TargetOrder::Next> next;
  if (own == nullptr && !(operation.atomic() && rules_.integers_by_nic)) {
    // Most operations of a burst join queued ones: these need no FabricTargets::Use.
    if (FabricTarget* const known = space_.targets.find(rank); known != nullptr && known->description != 0) {
      const auto held = space_.targets.hold(*known);
      if (known->busy != nullptr) {
        next = known->busy->order.offer(operation, traffic(*known->busy));
        if (*next == TargetOrder::Next::kQueued) return {};
      }
    }
  }
  const Result<FabricTargets::Use> used = space_.begin_use(rank);
  if (!used) return used.error();
  BusyTarget& to = *used.value();
  if (operation.atomic() && rules_.nic(operation.type, space_.place_of(*to.target, operation.offset)))
    return issue(to, own != nullptr ? *own : to, operation);
  if (own != nullptr) {
    // An accumulate keeps its order behind the queued operations; a put or get with a request may overtake them.
    Status before = operation.atomic() ? issue_queued(to) : Status();
    return before ? issue(to, *own, operation) : std::move(before);
  }
  for (;; next.reset()) {
    if (!next) {
      const auto held = space_.targets.hold(*to.target);
      next = to.order.offer(operation, traffic(to));
    }
    if (*next == TargetOrder::Next::kQueued) return {};
    if (*next == TargetOrder::Next::kIssue) return issue(to, to, operation);
    if (Status status = issue_queued(to); !status) return status;
  }
}

// The last list is queued under the rules of small operations.
Status FabricRoute::send_lists(int rank, std::span<std::unique_ptr<OperationList>> lists, Pending* own, bool last) {
  const Result<FabricTargets::Use> used = space_.begin_use(rank);
  if (!used) return used.error();
  BusyTarget& to = *used.value();
  Status first;
  for (std::unique_ptr<OperationList>& list : lists) {
    first.keep(issue_queued(to));
    if (last && own == nullptr) {
      const auto held = space_.targets.hold(*to.target);
      if (to.order.offer(list, traffic(to))) continue;
    }
    first.keep(send_list(to, own != nullptr ? *own : to, std::move(list)));
  }
  return first;
}

// Called before an operation leaves.
Status FabricRoute::acquire_first(BusyTarget& to) {
  if (!to.order.deferred()) [[likely]]
    return {};
  const TargetOrder::Acquire acquire = to.order.end_deferral();
  return acquire();
}

Status FabricRoute::issue_queued(BusyTarget& to) {
  if (to.order.deferred() && to.order.any_queued()) [[unlikely]] {
    if (Status status = acquire_first(to); !status) return status;
  }
  std::unique_ptr<OperationList> taken = space_.take_queued(to, false);
  if (taken == nullptr) return {};
  Status status = without_bad_alloc([&] { return send_list(to, to, std::move(taken)); });
  space_.queued_sent(to);
  return status;
}

// Accumulates towards one target take effect in the order in which they are issued (accumulate_ordering, MPI 4.0
// section 12.7.2): requests are ordered among themselves, and so are atomics of an adapter. No element is combined by
// both: type and address at the target decide, here and at the target. Puts and gets go by RDMA, or over TCP, if they
// are small, in messages.
Status FabricRoute::issue(BusyTarget& to, Pending& among, const DataOperation& operation) {
  if (Status status = acquire_first(to); !status) return status;
  Status issued = without_bad_alloc([&] {
    if (!operation.atomic()) return put_or_get(to, among, operation);
    const void* const address = space_.place_of(*to.target, operation.offset);
    if (rules_.nic(operation.type, address)) return control_.by_adapter(to, among, operation);
    rules_.count_slow(counts_, operation.type, address, true);
    return send_as_messages(to, among, operation);
  });
  // An operation that is reported as failed must not touch its buffers any more, so this waits for the parts that
  // were issued. Their errors, and those of other operations, are left to the call that completes them.
  if (!issued) [[unlikely]]
    space_.await(among);
  return issued;
}

Status FabricRoute::put_or_get(BusyTarget& to, Pending& among, const DataOperation& operation) {
  if (to.target->unconfirmed.any()) [[unlikely]] {
    if (Status confirmed = control_.confirm(to); !confirmed) return confirmed;
  }
  const bool put = operation.kind == OperationKind::kPut;
  // The target's provider answers RDMA that is issued after a message before the handler executes the message. So an
  // operation with its own request, which may be awaited while a large transfer follows, stays RDMA.
  if (&among == &to && operation.count <= (put ? kMostPutInRing : kMostGetInRing) &&
      space_.endpoint.has_message_ring(to.target->peer))
    return send_as_messages(to, among, operation);
  for (std::size_t done = 0; done < operation.count;) {
    const Result<FabricSpace::Keyed> found = space_.keyed(to, operation.offset + done, operation.count - done);
    if (!found) return found.error();
    const auto& [place, bytes] = found.value();
    Status issued =
        put ? space_.endpoint.write(among, place, static_cast<const std::byte*>(operation.origin) + done, bytes)
            : space_.endpoint.read(among, place, static_cast<std::byte*>(operation.fetched) + done, bytes);
    if (!issued) return issued;
    done += bytes;
  }
  return {};
}

// To the target's handler.
Status FabricRoute::send_as_messages(BusyTarget& to, Pending& among, const DataOperation& operation) {
  for (DataOperation rest = operation; rest.count > 0;) {
    const DataOperation part = take_part(rest);
    std::unique_ptr<OperationList> list = patiently([] { return OperationList::take_spare(); });
    patiently([&] { list->add(part); });
    if (Status status = send_list(to, among, std::move(list)); !status) return status;
  }
  return {};
}

Status FabricRoute::send_list(BusyTarget& to, Pending& among, std::unique_ptr<OperationList> list) {
  if (Status status = acquire_first(to); !status) return status;
  if (list->has_atomics()) space_.await(to, Pending::kAtomics);
  space_.await(to, Pending::kMessages, kMostLists - 1);
  const std::uint16_t notified = to.target->unconfirmed.last();
  Status issued = space_.send(among, *to.target, HandlerRequest::operations(), std::move(list));
  if (issued && &among == &to) to.before_list = notified;
  return issued;
}

Result<std::unique_ptr<Pending>> FabricRoute::own_pending(int rank) {
  const Result<FabricTargets::Use> used = space_.begin_use(rank);
  if (!used) return used.error();
  return std::make_unique<Pending>(&*used.value());
}

void FabricRoute::abandon(int rank, std::unique_ptr<Pending> own) {
  if (own == nullptr) return;
  const FabricTargets::Use use(space_.targets, *space_.targets.find(rank));
  const auto held = space_.targets.hold(*use->target);
  use->abandoned.push_back(std::move(own));
}

Status FabricRoute::flush(int rank, bool locally) {
  FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr) return {};
  const FabricTargets::Use use(space_.targets, *target, true);
  if (!use) return {};
  Status issued = begin_flush(*use, locally);
  issued.keep(complete(*use, locally));
  return issued;
}

Status FabricRoute::flush_all(bool locally) {
  if (!space_.targets.any_busy()) [[likely]]
    return {};
  Status first;
  // Issues towards all targets before it waits for any.
  space_.targets.for_each_busy([&](FabricTargets::Use& use) { first.keep(begin_flush(*use, locally)); });
  space_.targets.for_each_busy([&](FabricTargets::Use& use) { first.keep(complete(*use, locally)); });
  return first;
}

Status FabricRoute::begin_flush(BusyTarget& to, bool locally) {
  {
    const auto held = space_.targets.hold(*to.target);
    to.order.flush_begins();
  }
  Status issued = issue_queued(to);
  if (!locally) issued.keep(ask_behind_notifications(to));
  return issued;
}

// Sends a message with a reply. The reply implies that the earlier notifications, which have none, were executed,
// unless a connection has ended since.
Status FabricRoute::ask_behind_notifications(BusyTarget& to) {
  const std::uint32_t sent = to.notified;
  if (sent == to.asked) [[likely]]
    return {};
  Status asked = without_bad_alloc([&] {
    HandlerRequest read = FabricSpace::question_behind(to.unused);
    read.last_interruption = to.interruption_before;
    return space_.send(to, *to.target, std::move(read), nullptr);
  });
  const auto held = space_.targets.hold(*to.target);
  to.asked = sent;
  return asked;
}

// Waits for what has been issued. `locally`: only for what uses local buffers.
Status FabricRoute::complete(BusyTarget& to, bool locally) {
  const std::uint16_t notified = to.before_list;
  if (locally) {
    for (const auto of : {Pending::kWrites, Pending::kReads, Pending::kAtomics, Pending::kFetches})
      space_.await(to, of);
  } else {
    space_.await(to);
  }
  Status first = to.take_error();
  const auto held = space_.targets.hold(*to.target);
  to.order.flushed();
  if (first && !locally) to.target->unconfirmed.executed(notified);
  std::erase_if(to.abandoned, [&](const std::unique_ptr<Pending>& own) {
    const bool done = own->done();
    if (done) first.keep(own->take_error());
    return done;
  });
  return first;
}

// An error of reaching the rank is left to the operations that follow.
void FabricRoute::expect(int rank, bool notification) {
  (void)without_bad_alloc([&] {
    const FabricTargets::Use use(space_.targets, space_.entry_of(rank));
    const auto held = space_.targets.hold(*use->target);
    notification ? use->order.expect_notification(true) : use->order.expect_release();
  });
}

Status FabricRoute::notify(int rank, std::uint32_t word, std::uint32_t last_interruption) {
  const Result<FabricTargets::Use> used = space_.begin_use(rank);
  if (!used) return used.error();
  BusyTarget& to = *used.value();
  if (Status status = acquire_first(to); !status) return status;
  if (rules_.by_nic) {
    Status behind = order_before_release(rank);
    return behind ? control_.increment_by_adapter(to, word, last_interruption) : std::move(behind);
  }
  space_.await(to, Pending::kReads);
  if (Status before = to.take_error(); !before) return before;
  space_.await(to, Pending::kMessages, kMostLists - 1);
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, sizeof to.unused);
  return control_.send_behind(to, to, {ControlCall::kFetchAdd, {}, word, 1, 0}, &to.unused, false, last_interruption);
}

Status FabricRoute::order_before_release(int rank) {
  FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr) return {};
  const FabricTargets::Use use(space_.targets, *target, true);
  if (!use) return {};
  BusyTarget& to = *use;
  // Errors of detached memory are to be known before the release.
  if (space_.agreed.regions != nullptr) return flush(rank);
  Status first = to.take_error();
  if (rules_.by_nic) {
    // The adapter executes its atomics behind all earlier operations of the connection, but not behind requests,
    // which the handler executes.
    first.keep(issue_queued(to));
    space_.await(to, Pending::kMessages);
  } else {
    // The release is a message to the handler, together with the queued operations.
    space_.await(to, Pending::kReads);
    space_.await(to, Pending::kAtomics);
    first.keep(ask_behind_notifications(to));
  }
  first.keep(to.take_error());
  return first;
}

}  // namespace farside
