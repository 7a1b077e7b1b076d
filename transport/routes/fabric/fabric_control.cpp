// SPDX-License-Identifier: BSD-3-Clause
// Steps on control words, deferred locks, and the adapter's atomics.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_space.hpp"

namespace farside {

Status FabricControl::behind_queued(FabricTarget& to, Pending& pending, const ControlStep& step, std::uint64_t* fetched,
                                    bool awaited) {
  const auto send = [&](std::unique_ptr<OperationList> list) {
    // Fetched data need a reply.
    if (awaited || (list != nullptr && list->fetched_bytes() > 0))
      return space_.endpoint.execute_and_control(pending, space_.handler_of(to), std::move(list), step, fetched);
    const bool carries = list != nullptr && !space_.endpoint.acknowledges_notifications();
    Status sent = space_.endpoint.notify(pending, space_.handler_of(to), std::move(list), step, fetched);
    if (carries) {
      const auto held = space_.targets.hold(to);
      to.unconfirmed.sent();
    }
    return sent;
  };
  const FabricTargets::Use use(space_.targets, to);
  // In a dynamic space, detached memory may stop the operations, and only a reply reports that. A message without a
  // reply does not carry them; they stay queued.
  if (!use || (!awaited && space_.agreed.regions != nullptr)) return send(nullptr);
  QueuedOperations taken = space_.take_queued(*use, true);
  // A flush by another thread waits for them, too.
  if (!taken.empty()) {
    taken.make_list();
    pending.next_counts_in(&use->requests);
  }
  Status status = send(std::move(taken.list));
  if (!status) pending.next_counts_in(nullptr);
  space_.queued_sent(*use, std::move(taken));
  return status;
}

Status FabricControl::control(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                              const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) {
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  if (space_.agreed.rules.by_nic) {
    const Result<FabricTarget*> to = space_.describe(rank);
    if (!to) return to.error();
    const FabricTarget& target = *to.value();
    return space_.endpoint.control(pending, {target.peer, space_.targets.description(target).control_key, word}, call,
                                   operand, compare, fetched);
  }
  const Result<FabricTarget*> to = space_.reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, *compare};
  if (access == DataAccess::kEnds) return behind_queued(*to.value(), pending, step, fetched, true);
  return space_.endpoint.execute_and_control(pending, space_.handler_of(*to.value()), nullptr, step, fetched);
}

Status FabricControl::notify(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                             const std::uint64_t* operand, std::uint64_t* fetched) {
  if (space_.agreed.rules.by_nic) return control(call, access, rank, word, pending, operand, operand, fetched);
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Result<FabricTarget*> to = space_.reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, 0};
  if (access == DataAccess::kEnds) return behind_queued(*to.value(), pending, step, fetched, false);
  return space_.endpoint.notify(pending, space_.handler_of(*to.value()), nullptr, step, fetched);
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

std::uint32_t FabricControl::lost_notifications(int rank) const {
  if (interruptions() == 0) [[likely]]
    return 0;
  const FabricTarget* const target = space_.targets.find(rank);
  return target != nullptr ? space_.endpoint.lost_notifications(target->peer) : 0;
}

bool FabricControl::interrupted_since(int rank, std::uint32_t interruptions) {
  if (space_.endpoint.interruptions() == interruptions) [[likely]]
    return false;
  const Result<FabricTarget*> target = space_.reach(rank);
  if (!target) return false;
  // The numbers may wrap.
  const std::uint32_t last = space_.endpoint.last_interruption(target.value()->peer);
  return last != 0 && static_cast<std::int32_t>(last - interruptions) > 0;
}

bool FabricControl::interrupted_since_post(int rank) {
  if (space_.endpoint.interruptions() == first_interruptions_) [[likely]]
    return false;
  if (interruptions_at_post_ == nullptr) return interrupted_since(rank, first_interruptions_);
  const auto found = interruptions_at_post_->find(rank);
  return interrupted_since(rank, found != interruptions_at_post_->end() ? found->second : first_interruptions_);
}

bool FabricControl::may_read(int rank) {
  const FabricTarget* const target = space_.targets.find(rank);
  if (target == nullptr || (space_.agreed.rules.by_nic && target->description == 0)) return false;
  if (space_.endpoint.has_loss_to_report(target->peer) || !space_.endpoint.reach(target->peer).connected) return false;
  bool busy = false;
  space_.targets.for_each_busy([&](FabricTargets::Use& use) { busy = busy || (use->rank == rank && !use->done()); });
  return !busy;
}

ControlRoute::Reach FabricControl::reach(int rank) {
  const Result<FabricTarget*> target = space_.reach(rank);
  if (!target) return {false, target.error().text};
  Endpoint::Reach reach = space_.endpoint.reach(target.value()->peer);
  return {reach.connected, std::move(reach.error)};
}

std::vector<int> FabricControl::unacknowledged() {
  std::vector<int> ranks;
  space_.targets.for_each_busy([&](FabricTargets::Use& use) {
    if (!use->done()) ranks.push_back(use->rank);
  });
  return ranks;
}

// The reply to a message implies that the earlier messages were executed.
Status FabricControl::confirm(BusyTarget& to) {
  constexpr std::uint32_t kAnyWord = 0;
  std::uint64_t fetched = 0;
  Pending pending;
  pending.towards(to.rank);
  const std::uint16_t latest = to.target->unconfirmed.last();
  Status asked = space_.endpoint.execute_and_control(pending, space_.handler_of(*to.target), nullptr,
                                                     {ControlCall::kRead, {}, kAnyWord, 1, 0}, &fetched);
  if (asked) asked = space_.wait_for(pending);
  if (!asked) return asked;
  const auto held = space_.targets.hold(*to.target);
  to.target->unconfirmed.executed(latest);
  return {};
}

Status FabricControl::defer(int rank, Acquire acquire) {
  const Result<FabricTargets::Use> used = space_.use(rank);
  if (!used) return used.error();
  const auto held = space_.targets.hold(*used.value()->target);
  used.value()->order.defer(std::move(acquire));
  return {};
}

void FabricControl::end_deferral(int rank) {
  const FabricTargets::Use use(space_.targets, *space_.targets.find(rank));
  (void)use->order.end_deferral();
}

void FabricControl::drop_queued(int rank) {
  if (const FabricTargets::Use use(space_.targets, *space_.targets.find(rank)); use) space_.drop_queued(*use);
}

Status FabricControl::execute(int rank, const ControlStep& acquire_step, const ControlStep& release_step,
                              LockedResult& result) {
  const FabricTargets::Use use(space_.targets, *space_.targets.find(rank), rank);
  (void)use->order.end_deferral();
  Process::instance().statistics().add(RouteKind::kFabric, Counted::kControl, 2 * sizeof acquire_step.operand, 2);
  QueuedOperations taken = space_.take_queued(*use, true);
  Pending pending;
  pending.towards(rank);
  Status status = without_bad_alloc([&] {
    if (!taken.empty()) taken.make_list();
    return space_.endpoint.execute_locked(pending, space_.handler_of(*use->target), std::move(taken.list), acquire_step,
                                          release_step, result);
  });
  space_.queued_sent(*use, std::move(taken));
  return status ? space_.wait_for(pending) : std::move(status);
}

void FabricControl::queue_again(int rank, std::unique_ptr<OperationList> list) {
  const FabricTargets::Use use(space_.targets, *space_.targets.find(rank), rank);
  QueuedOperations queued;
  queued.list = std::move(list);
  const auto held = space_.targets.hold(*use->target);
  use->order.queue_again(std::move(queued));
}

// ---- atomics of the adapter ----

namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
// The most atomics that are under way towards one target. Adapters work on about 16 at a time, and more of them make
// a stall of Soft-RoCE more likely (tests/running.md, "Soft-RoCE").
constexpr std::size_t kCallsTogether = 32;

std::uint64_t word_at(const void* address) {
  std::uint64_t word = 0;
  if (address != nullptr) std::memcpy(&word, address, sizeof word);
  return word;
}

const std::byte* element(const void* buffer, std::size_t index) {
  return buffer != nullptr ? static_cast<const std::byte*>(buffer) + index * kWord : nullptr;
}
std::byte* element(void* buffer, std::size_t index) {
  return buffer != nullptr ? static_cast<std::byte*>(buffer) + index * kWord : nullptr;
}

}  // namespace

Status NicAtomics::control_element(BusyTarget& to, Pending& among, ControlCall call, std::uint64_t offset,
                                   const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) {
  const Result<FabricSpace::Keyed> found = space_.keyed(to, offset, sizeof(std::uint64_t));
  if (!found) return found.error();
  return space_.endpoint.control(among, {to.target->peer, found.value().key, found.value().offset}, call, operand,
                                 compare, fetched);
}

Status NicAtomics::issue(BusyTarget& to, Pending& among, const DataOperation& operation) {
  const bool swap = operation.kind == OperationKind::kCompareAndSwap;
  if (!swap && operation.op != ReduceOp::kSum && operation.op != ReduceOp::kNoOp)
    return combine_elements(to, operation);
  const ControlCall call = swap                             ? ControlCall::kCompareAndSwap
                           : operation.op == ReduceOp::kSum ? ControlCall::kFetchAdd
                                                            : ControlCall::kRead;
  for (std::size_t i = 0; i < operation.count; ++i) {
    for (Waiter waiter(space_.waiting, space_.wake_event); among.count() >= kCallsTogether;) waiter.pause();
    const std::uint64_t operand = call == ControlCall::kRead ? 1 : word_at(element(operation.origin, i));
    const std::uint64_t compare = word_at(operation.compare);
    Status status = control_element(to, among, call, operation.offset + i * kWord, &operand, &compare,
                                    reinterpret_cast<std::uint64_t*>(element(operation.fetched, i)));
    if (!status) return status;
  }
  return {};
}

// Operations for which adapters have no atomic: reads elements, combines them here and compare-and-swaps them, again
// after a pause where another origin has changed an element meanwhile.
Status NicAtomics::combine_elements(BusyTarget& to, const DataOperation& operation) {
  struct Element {
    std::size_t index;
    std::uint64_t before, after, seen;
  };
  std::vector<Element> left;
  for (std::size_t first = 0; first < operation.count; first += kCallsTogether) {
    for (std::size_t i = first; i < std::min(first + kCallsTogether, operation.count); ++i)
      left.push_back({i, 0, 0, 0});
    Backoff backoff;
    for (bool read = true; !left.empty(); read = false) {
      Pending own;
      Status status;
      for (Element& each : left) {
        const std::uint64_t offset = operation.offset + each.index * kWord;
        if (read) {
          constexpr std::uint64_t kOneWord = 1;
          status = control_element(to, own, ControlCall::kRead, offset, &kOneWord, nullptr, &each.before);
        } else {
          each.after = each.before;
          combine(AtomicMethod::kLocked, operation.op, operation.type, reinterpret_cast<std::byte*>(&each.after),
                  element(operation.origin, each.index), nullptr, 1);
          status =
              control_element(to, own, ControlCall::kCompareAndSwap, offset, &each.after, &each.before, &each.seen);
        }
        if (!status) break;
      }
      Status done = space_.wait_for(own);
      if (!status) return status;
      if (!done) return done;
      if (read) continue;
      std::erase_if(left, [&](Element& each) {
        if (each.seen != std::exchange(each.before, each.seen)) return false;
        if (operation.fetched != nullptr) std::memcpy(element(operation.fetched, each.index), &each.seen, kWord);
        return true;
      });
      if (!left.empty()) backoff.pause(space_.waiting);
    }
  }
  return {};
}

void NicAtomics::atomic_at(int rank, const DataOperation& operation) {
  const auto carry_out = [&]() -> Status {
    const Result<FabricTargets::Use> used = space_.use(rank);
    if (!used) return used.error();
    Pending pending;
    pending.towards(rank);
    Status issued = issue(*used.value(), pending, operation);
    Status done = space_.wait_for(pending);
    return issued ? std::move(done) : std::move(issued);
  };
  if (Status done = carry_out(); !done)
    log(LogLevel::kError, "an atomic on rank {} by the adapter: {}", rank, done.error().text);
}

}  // namespace farside
