// SPDX-License-Identifier: BSD-3-Clause
// Steps on control words, deferred locks, and the adapter's atomics.
#include <cstring>
#include <optional>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside {

Status FabricControl::send_behind(BusyTarget& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched,
                                  bool awaited, std::optional<std::uint32_t> after) {
  std::unique_ptr<OperationList> list = space_.take_queued(to, true);
  const bool carries = list != nullptr, notified_access = &pending == &to;
  // Fetched data need a reply, as does what detached memory may stop.
  const bool replies = awaited || (carries && (list->fetches() || space_.agreed.regions != nullptr));
  const bool confirmed = replies || space_.endpoint.acknowledges_notifications();
  const std::uint16_t latest = to.target->unconfirmed.last();
  // A flush by another thread waits for them, too.
  if (carries && !notified_access) pending.next_counts_in(&to);
  Status sent = without_bad_alloc([&] {
    HandlerRequest request = HandlerRequest::with(step, fetched, replies);
    request.last_interruption = after;
    return space_.send(pending, *to.target, std::move(request), std::move(list));
  });
  if (!sent && !notified_access) pending.next_counts_in(nullptr);
  const auto held = space_.targets.hold(*to.target);
  to.order.sent();
  if (notified_access) to.order.expect_notification(false);
  if (sent && confirmed && carries) to.before_list = latest;
  if (!confirmed && carries && !notified_access) to.target->unconfirmed.sent();
  if (!confirmed && sent && notified_access) {
    if (to.notified == to.asked) to.interruption_before = *after;
    ++to.notified;
  }
  return sent;
}

Status FabricControl::control(const ControlStep& step, DataAccess access, int rank, Pending& pending,
                              std::uint64_t* fetched, bool awaited) {
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, sizeof step.operand);
  if (space_.agreed.rules.by_nic) {
    const Result<FabricTarget*> to = space_.described_entry(rank);
    if (!to) return to.error();
    const FabricTarget& target = *to.value();
    return space_.endpoint.control(pending, {target.peer, space_.control_key(target), step.word}, step, fetched);
  }
  FabricTarget& to = space_.entry_of(rank);
  if (access == DataAccess::kEnds) {
    if (const FabricTargets::Use use(space_.targets, to, true); use) {
      if (awaited) return send_behind(*use, pending, step, fetched, true);
      // A notification does not overtake operations that were lost with a connection.
      const std::uint32_t after = space_.endpoint.losses(to.peer).last_interruption;
      if (use->has_error()) return use->take_error();
      return send_behind(*use, pending, step, fetched, false, after);
    }
  }
  return space_.send(pending, to, HandlerRequest::with(step, fetched, awaited), nullptr);
}

void FabricControl::post_received(int rank) {
  FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr) return;
  if (target->unconfirmed.any()) {
    const auto held = space_.targets.hold(*target);
    target->unconfirmed.executed(target->unconfirmed.last());
  }
  const std::uint32_t now = space_.endpoint.interruptions();
  if (now != first_interruptions_) [[unlikely]]
    interruptions_at_post_[rank] = now;
}

bool FabricControl::may_read(int rank) {
  const FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr || (space_.agreed.rules.by_nic && target->description == 0)) return false;
  if (space_.endpoint.losses(target->peer).to_report) return false;
  const Result<bool> reached = space_.endpoint.reach(target->peer);
  if (!reached || !reached.value()) return false;
  bool busy = false;
  space_.targets.for_each_busy([&](FabricTargets::Use& use) { busy = busy || (use->rank == rank && !use->done()); });
  return !busy;
}

Status FabricControl::confirm(BusyTarget& to) {
  std::uint64_t fetched = 0;
  const std::uint16_t latest = to.target->unconfirmed.last();
  if (Status asked = space_.ask(*to.target, FabricSpace::question_behind(fetched)); !asked) return asked;
  const auto held = space_.targets.hold(*to.target);
  to.target->unconfirmed.executed(latest);
  return {};
}

Status FabricControl::execute(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                              LockedResult& result) {
  const FabricTargets::Use use(space_.targets, *space_.targets.find(rank));
  (void)use->order.end_deferral();
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, 2 * sizeof acquire_step.operand, 2);
  return space_.wait_for(rank, [&](Pending& pending) {
    std::unique_ptr<OperationList> taken = space_.take_queued(*use, true);
    Status status = without_bad_alloc([&] {
      return space_.send(pending, *use->target, HandlerRequest::between(acquire_step, release_step, result),
                         std::move(taken));
    });
    space_.queued_sent(*use);
    return status;
  });
}

// ---- atomics of the adapter ----

namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
// The most atomics that are under way towards one target. Adapters work on about 16 at a time, and more of them make
// a stall of Soft-RoCE more likely (tests/running.md, "Soft-RoCE").
constexpr std::uint32_t kCallsTogether = 32;

std::uint64_t word_at(const void* address) {
  std::uint64_t word = 0;
  if (address != nullptr) std::memcpy(&word, address, sizeof word);
  return word;
}

// An element of an operation's buffer, which may be null.
std::byte* element(const void* buffer, std::size_t index) {
  return buffer != nullptr ? static_cast<std::byte*>(const_cast<void*>(buffer)) + index * kWord : nullptr;
}

}  // namespace

Status FabricControl::control_element(BusyTarget& to, Pending& among, std::uint64_t offset, const ControlStep& step,
                                      std::uint64_t* fetched) {
  const Result<FabricSpace::Keyed> found = space_.keyed(to, offset, kWord);
  if (!found) return found.error();
  return space_.endpoint.control(among, found.value().place, step, fetched);
}

Status FabricControl::by_adapter(BusyTarget& to, Pending& among, const DataOperation& operation) {
  const bool swap = operation.kind == OperationKind::kCompareAndSwap;
  const bool combines = !swap && operation.op != ReduceOp::kSum && operation.op != ReduceOp::kNoOp;
  const ControlCall call = swap                             ? ControlCall::kCompareAndSwap
                           : operation.op == ReduceOp::kSum ? ControlCall::kFetchAdd
                                                            : ControlCall::kRead;
  Status status;
  for (std::size_t i = 0; status && i < operation.count; ++i) {
    if (combines) {
      status = combine_element(to, operation, i);
      continue;
    }
    space_.await(among, Pending::kAtomics, kCallsTogether - 1);
    const std::uint64_t operand = call == ControlCall::kRead ? 1 : word_at(element(operation.origin, i));
    status =
        control_element(to, among, operation.offset + i * kWord, {call, {}, 0, operand, word_at(operation.compare)},
                        reinterpret_cast<std::uint64_t*>(element(operation.fetched, i)));
  }
  return status;
}

Status FabricControl::increment_by_adapter(BusyTarget& to, std::uint32_t word, std::uint32_t last_interruption) {
  const ControlStep add{ControlCall::kFetchAdd, {}, word, 1, 0};
  const Endpoint::Place place{to.target->peer, space_.control_key(*to.target), word, last_interruption};
  space_.await(to, Pending::kAtomics, kCallsTogether - 1);
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, kWord);
  return without_bad_alloc([&] { return space_.endpoint.control(to, place, add, &to.unused); });
}

// An operation for which adapters have no atomic: reads the element, combines it here and compare-and-swaps it, again
// where another origin has changed it meanwhile.
Status FabricControl::combine_element(BusyTarget& to, const DataOperation& operation, std::size_t index) {
  const auto step = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare, std::uint64_t* fetched) {
    return space_.wait_for(to.rank, [&](Pending& own) {
      return control_element(to, own, operation.offset + index * kWord, {call, {}, 0, operand, compare}, fetched);
    });
  };
  std::uint64_t before = 0;
  Status status = step(ControlCall::kRead, 1, 0, &before);
  while (status) {
    std::uint64_t after = before, seen = 0;
    combine(AtomicMethod::kLocked, operation.op, operation.type, reinterpret_cast<std::byte*>(&after),
            element(operation.origin, index), nullptr, 1);
    status = step(ControlCall::kCompareAndSwap, after, before, &seen);
    if (status && seen == std::exchange(before, seen)) {
      if (operation.fetched != nullptr) std::memcpy(element(operation.fetched, index), &seen, kWord);
      return {};
    }
  }
  return status;
}

void FabricControl::atomic_at(int rank, const DataOperation& operation) {
  Status done = [&]() -> Status {
    const Result<FabricTargets::Use> used = space_.begin_use(rank);
    if (!used) return used.error();
    return space_.wait_for(rank, [&](Pending& pending) { return by_adapter(*used.value(), pending, operation); });
  }();
  if (!done) log(LogLevel::kError, "an atomic on rank {} by the adapter: {}", rank, done.error().text);
}

}  // namespace farside
