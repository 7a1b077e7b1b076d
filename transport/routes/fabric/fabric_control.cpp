// SPDX-License-Identifier: BSD-3-Clause
// Steps on control words, deferred locks, and the adapter's atomics.
#include <cstring>
#include <optional>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside {

Status FabricControl::send(int rank, DataAccess access, const ControlStep& step, Pending& pending,
                           std::uint64_t* fetched, bool awaited) {
  FabricTarget& to = space_.entry_of(rank);
  std::optional<std::uint32_t> after;
  const auto send_with = [&](std::unique_ptr<OperationList> list) {
    // Fetched data need a reply.
    const bool replies = awaited || (list != nullptr && list->fetches());
    const bool unconfirmed = !replies && list != nullptr && !space_.endpoint.acknowledges_notifications();
    HandlerRequest request =
        replies ? HandlerRequest::with(step, fetched) : HandlerRequest::notification(step, fetched);
    request.last_interruption = after;
    Status sent = space_.send(pending, to, std::move(request), std::move(list));
    if (unconfirmed) {
      const auto held = space_.targets.hold(to);
      to.unconfirmed.sent();
    }
    return sent;
  };
  if (access == DataAccess::kGoesOn) return send_with(nullptr);
  const FabricTargets::Use use(space_.targets, to, true);
  // In a dynamic space, detached memory may stop the operations, and only a reply reports that. A message without a
  // reply does not carry them; they stay queued.
  if (!use || (!awaited && space_.agreed.regions != nullptr)) return send_with(nullptr);
  // A notification does not overtake operations that were lost with a connection.
  if (!awaited) {
    after = space_.endpoint.losses(to.peer).last_interruption;
    if (use->has_error()) return use->take_error();
  }
  std::unique_ptr<OperationList> taken = space_.take_queued(*use, true);
  // A flush by another thread waits for them, too.
  if (taken != nullptr) pending.next_counts_in(&*use);
  Status status = send_with(std::move(taken));
  if (!status) pending.next_counts_in(nullptr);
  space_.queued_sent(*use);
  return status;
}

Status FabricControl::control(const ControlStep& step, DataAccess access, int rank, Pending& pending,
                              std::uint64_t* fetched, bool awaited) {
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, sizeof step.operand);
  if (!space_.agreed.rules.by_nic) return send(rank, access, step, pending, fetched, awaited);
  const Result<FabricTarget*> to = space_.described_entry(rank);
  if (!to) return to.error();
  const FabricTarget& target = *to.value();
  return space_.endpoint.control(pending, {target.peer, space_.control_key(target), step.word}, step, fetched);
}

void FabricControl::post_received(int rank) {
  FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr) return;
  if (target->unconfirmed.any()) {
    const auto held = space_.targets.hold(*target);
    target->unconfirmed.executed(target->unconfirmed.last());
  }
  const std::uint32_t now = space_.endpoint.interruptions();
  if (now != first_interruptions_) [[unlikely]] {
    if (interruptions_at_post_ == nullptr) interruptions_at_post_ = std::make_unique<std::map<int, std::uint32_t>>();
    (*interruptions_at_post_)[rank] = now;
  }
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
