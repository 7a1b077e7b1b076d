// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/fabric/target_order.hpp"

namespace farside {

// The first small operation leaves at once, so that it is under way while the application computes. Operations that
// follow before it completes would each cost about 10 us in the provider. In a burst the first one is queued, too.
bool TargetOrder::keeps(bool atomic, bool in_burst, const Traffic& traffic) const {
  if ((release_expected_ && !traffic.by_nic) || !queued_.empty()) return true;
  if (traffic.by_nic && !atomic) return false;
  if (in_burst && traffic.idle) return true;
  return atomic ? !traffic.requests_idle : !traffic.idle;
}

TargetOrder::Next TargetOrder::offer(Offer& offer, const Traffic& traffic) {
  const bool small = offer.operation.bytes() <= (release_expected_ ? kMostBeforeRelease : kMostCoalesced);
  // Before a release all small operations are queued anyway; puts and gets that the adapter takes never begin a list.
  const bool begins_none = release_expected_ || (traffic.by_nic && !offer.operation.atomic());
  if (small && !offer.burst && !begins_none) {
    offer.burst = bursts_.next_operation();
  } else if (offer.burst == Bursts::Next::kTooLate) {
    offer.burst = Bursts::Next::kDefault;
  }
  const bool waits = offer.burst == Bursts::Next::kCoalesce;
  if (small && offer.burst != Bursts::Next::kTooLate && keeps(offer.operation.atomic(), waits, traffic)) {
    if (offer.burst) bursts_.joined();
    return queued_.add(offer.operation) ? Next::kQueued : Next::kIssueQueued;
  }
  return queued_.empty() && !issuing_ ? Next::kIssue : Next::kIssueQueued;
}

TargetOrder::Next TargetOrder::offer(std::unique_ptr<OperationList>& list, const Traffic& traffic) {
  if (!keeps(list->has_atomics(), false, traffic)) return Next::kIssue;
  if (!queued_.empty()) return Next::kIssueQueued;
  queued_.list = std::move(list);
  return Next::kQueued;
}

std::optional<QueuedOperations> TargetOrder::take(bool even_nothing) {
  if (issuing_) return std::nullopt;
  if (queued_.empty() && !even_nothing) return QueuedOperations();
  issuing_ = true;
  return std::exchange(queued_, {});
}

void TargetOrder::sent(QueuedOperations issued) {
  issuing_ = false;
  queued_.reuse(std::move(issued));
}

}  // namespace farside
