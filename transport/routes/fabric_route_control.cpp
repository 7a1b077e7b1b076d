// SPDX-License-Identifier: BSD-3-Clause
// Control words of other ranks: steps that wait for a reply, notifications, and which of them may have been lost.
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "transport/routes/fabric_route.hpp"

namespace farside {

Status FabricRoute::control_behind_kept(FabricTarget& to, Pending& pending, const ControlStep& step,
                                        std::uint64_t* fetched, bool awaited) {
  const auto send = [&](std::unique_ptr<OperationList> list) {
    // Fetched data need a reply.
    if (awaited || (list != nullptr && list->fetched_bytes() > 0))
      return endpoint_.execute_and_control(pending, handler_of(to), std::move(list), step, fetched);
    const bool carries = list != nullptr && !endpoint_.acknowledges_notifications();
    Status sent = endpoint_.notify(pending, handler_of(to), std::move(list), step, fetched);
    if (carries) {
      const auto held = targets_.hold(to);
      to.unconfirmed.sent();
    }
    return sent;
  };
  const FabricTargets::Use use(targets_, to);
  // In a dynamic space, detached memory may stop the operations, and only a reply reports that. A message without a
  // reply does not carry them; they stay kept.
  if (!use || (!awaited && agreed_.regions != nullptr)) return send(nullptr);
  KeptOperations taken = take_kept(*use, true);
  // A flush by another thread waits for them, too.
  if (!taken.empty()) {
    taken.make_list();
    pending.next_counts_in(&use->requests);
  }
  Status status = send(std::move(taken.list));
  if (!status) pending.next_counts_in(nullptr);
  kept_sent(*use, std::move(taken));
  return status;
}

Status FabricRoute::control(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                            const std::uint64_t* operand, const std::uint64_t* compare, std::uint64_t* fetched) {
  statistics_.add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  if (agreed_.rules.by_nic) {
    const Result<FabricTarget*> to = describe(rank);
    if (!to) return to.error();
    const FabricTarget& target = *to.value();
    return endpoint_.control(pending, {target.peer, targets_.description(target).control_key, word}, call, operand,
                             compare, fetched);
  }
  const Result<FabricTarget*> to = reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, *compare};
  if (access == DataAccess::kEnds) return control_behind_kept(*to.value(), pending, step, fetched, true);
  return endpoint_.execute_and_control(pending, handler_of(*to.value()), nullptr, step, fetched);
}

Status FabricRoute::notify(ControlCall call, DataAccess access, int rank, std::uint32_t word, Pending& pending,
                           const std::uint64_t* operand, std::uint64_t* fetched) {
  if (agreed_.rules.by_nic) return control(call, access, rank, word, pending, operand, operand, fetched);
  statistics_.add(RouteKind::kFabric, Counted::kControl, sizeof *operand);
  const Result<FabricTarget*> to = reach(rank);
  if (!to) return to.error();
  const ControlStep step{call, {}, word, *operand, 0};
  if (access == DataAccess::kEnds) return control_behind_kept(*to.value(), pending, step, fetched, false);
  return endpoint_.notify(pending, handler_of(*to.value()), nullptr, step, fetched);
}

void FabricRoute::post_received(int rank) {
  FabricTarget* const target = targets_.find(rank);
  if (target == nullptr) return;
  if (target->unconfirmed.any()) {
    const auto held = targets_.hold(*target);
    target->unconfirmed.executed(target->unconfirmed.last());
  }
  const std::uint32_t now = endpoint_.interruptions();
  if (now != first_interruptions_) [[unlikely]] {
    if (interruptions_at_post_ == nullptr) interruptions_at_post_ = std::make_unique<std::map<int, std::uint32_t>>();
    (*interruptions_at_post_)[rank] = now;
  }
}

bool FabricRoute::interrupted_since(int rank, std::uint32_t interruptions) {
  if (endpoint_.interruptions() == interruptions) [[likely]]
    return false;
  const Result<FabricTarget*> target = reach(rank);
  if (!target) return false;
  // The numbers may wrap.
  const std::uint32_t last = endpoint_.last_interruption(target.value()->peer);
  return last != 0 && static_cast<std::int32_t>(last - interruptions) > 0;
}

bool FabricRoute::interrupted_since_post(int rank) {
  if (endpoint_.interruptions() == first_interruptions_) [[likely]]
    return false;
  if (interruptions_at_post_ == nullptr) return interrupted_since(rank, first_interruptions_);
  const auto found = interruptions_at_post_->find(rank);
  return interrupted_since(rank, found != interruptions_at_post_->end() ? found->second : first_interruptions_);
}

// The reply to a message implies that the earlier messages were executed.
Status FabricRoute::confirm(BusyTarget& to) {
  constexpr std::uint32_t kAnyWord = 0;
  std::uint64_t fetched = 0;
  Pending pending;
  pending.towards(to.rank);
  const std::uint16_t latest = to.target->unconfirmed.last();
  Status asked = endpoint_.execute_and_control(pending, handler_of(*to.target), nullptr,
                                               {ControlCall::kRead, {}, kAnyWord, 1, 0}, &fetched);
  if (asked) asked = wait_for(pending);
  if (!asked) return asked;
  const auto held = targets_.hold(*to.target);
  to.target->unconfirmed.executed(latest);
  return {};
}

}  // namespace farside
