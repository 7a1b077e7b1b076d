// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/peers.hpp"

#include <algorithm>
#include <cstring>

namespace farside {

namespace {

// Returns whether operations are in flight towards the peer, and none has completed for `so_long`.
bool quiet(PeerState& peer, Clock::time_point now, Clock::duration so_long) {
  const std::uint32_t completed = peer.completed;
  const bool any = peer.awaits_host();
  const bool moved = completed != peer.completed_then || peer.begun;
  peer.completed_then = completed;
  if (peer.begun) peer.begun = false;
  if (!any || moved) {
    peer.quiet_since = now;
    peer.unacknowledged_since = {};
  }
  return any && now - peer.quiet_since >= so_long;
}

Clock::duration half(std::chrono::seconds timeout) { return Clock::duration(timeout) / 2; }

}  // namespace

// ---- one peer ----

void PeerState::issued(FabricOperation& operation, Pending& pending, Pending::Class counted) {
  operation.pending = &pending;
  operation.counted = counted;
  operation.endpoint = endpoint;
  if (operation.request) ++requests;
  if (operation.notification) ++notifications;
  operation.notifications_before = notifications;
  pending.issued(counted);
}

bool PeerState::any_issued() {
  const std::scoped_lock held(mutex);
  bool any = false;
  pool.for_each([&](const FabricOperation& operation) { any = any || operation.pending != nullptr; });
  return any;
}

void PeerState::back_off(Clock::time_point now) {
  constexpr std::uint16_t kDoublings = 7;
  not_before =
      now + std::min<Timing::Milliseconds>(Timing::kConnectAgain * (1U << refused), Timing::kConnectAgainLongest);
  if (refused < kDoublings) ++refused;
}

// ---- all peers, and the operations in flight ----

PeerState& Peers::know(std::uint64_t identity) {
  if (PeerState* const known = find(identity)) return *known;
  const Peer number = peers_.size();
  PeerState& peer = peers_.add();
  peer.number = number;
  peer.address.identity = identity;
  by_identity_.emplace(identity, number);
  return peer;
}

void Peers::completed(FabricOperation& operation) {
  const std::scoped_lock held(operation.peer.mutex);
  if (operation.into != nullptr && operation.pending != nullptr)
    std::memcpy(operation.into, operation.slot->bytes, operation.into_bytes);
  if (--operation.completions_left == 0) finish(operation);
}

const fid_ep* Peers::failed(FabricOperation& operation, Error error) {
  const std::scoped_lock held(operation.peer.mutex);
  const fid_ep* const endpoint = operation.endpoint;
  if (operation.pending != nullptr) operation.pending->failed(std::move(error));
  finish(operation);
  return endpoint;
}

bool Peers::take_reply(std::span<const std::byte> message) {
  ReplyHeader header;
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  const std::uint64_t number = header.operation ^ mask_;
  if (number >> 32 >= peers_.size()) return false;
  PeerState& peer = of(number >> 32);
  const std::scoped_lock held(peer.mutex);
  FabricOperation* const operation = peer.pool.find(number & 0xffff'ffff);
  if (operation == nullptr || !operation->awaits_reply || operation->generation != header.generation) return false;
  // Without memory for the text of an error the reply counts anyway.
  Status delivered = without_bad_alloc(
      [&] { return operation->message.deliver(header.status, message.subspan(sizeof header), operation->list.get()); });
  LockedResult* const locked = operation->message.locked;
  if (locked != nullptr && locked->stopped) locked->list = std::move(operation->list);
  if (!delivered) operation->pending->failed(delivered.error());
  operation->awaits_reply = false;
  if (--operation->completions_left == 0) finish(*operation);
  return true;
}

void Peers::fail_all(PeerState& peer, const Error& error) {
  const std::scoped_lock held(peer.mutex);
  interrupted(peer);
  peer.pool.for_each([&](FabricOperation& operation) {
    Pending* const pending = std::exchange(operation.pending, nullptr);
    if (pending == nullptr) return;
    --peer.in_flight;
    if (operation.request) --peer.requests;
    // A request no longer awaits its reply: it ends here unless its send must still complete.
    if (std::exchange(operation.awaits_reply, false) && --operation.completions_left == 0) recycle(operation);
    pending->failed(error);
    pending->completed(operation.counted);
  });
}

void Peers::fail_awaiting(PeerState& peer, const Error& error, bool in_order) {
  const std::scoped_lock held(peer.mutex);
  if (!in_order) interrupted(peer);
  peer.pool.for_each([&](FabricOperation& operation) {
    if (operation.pending == nullptr || !std::exchange(operation.awaits_reply, false)) return;
    operation.pending->failed(error);
    if (--operation.completions_left == 0) finish(operation);
  });
}

void Peers::interrupted(PeerState& peer) {
  if (peer.confirmed != peer.notifications) {
    peer.confirmed = peer.notifications;
    peer.losses.lost_notifications.fetch_add(1, std::memory_order_relaxed);
    peer.losses.to_report.store(true, std::memory_order_relaxed);
    peer.owes_number = true;
  }
  count_interruption(peer);
}

void Peers::numbered(PeerState& peer, std::uint32_t number) {
  const auto ahead = static_cast<std::int32_t>(number - peer.arrived);  // numbers may wrap
  if (ahead > 0) peer.arrived = number;
  if (ahead > 1) count_interruption(peer);
}

void Peers::count_interruption(PeerState& peer) {
  const std::uint32_t number = interruptions_.load(std::memory_order_relaxed) + 1;
  peer.losses.last_interruption.store(number, std::memory_order_relaxed);
  // Release: a thread that reads the number sees the words that the peer's messages have changed, and the peer's
  // losses.
  interruptions_.store(number, std::memory_order_release);
}

void Peers::finish(FabricOperation& operation) {
  PeerState& peer = operation.peer;
  Pending* const pending = operation.pending;
  const Pending::Class counted = operation.counted;
  if (pending != nullptr) {
    --peer.in_flight;
    if (operation.request) --peer.requests;
    ++peer.completed;
    // An operation that the peer has acknowledged arrived there behind the earlier notifications. Numbers may wrap.
    const std::uint32_t arrived = operation.notifications_before - peer.confirmed;
    if (!operation.notification && !pending->has_error() && arrived <= peer.notifications - peer.confirmed)
      peer.confirmed = operation.notifications_before;
  }
  recycle(operation);
  if (pending != nullptr) pending->completed(counted);
}

void Peers::recycle(FabricOperation& operation) {
  if (operation.slot != nullptr) memory_.release(std::exchange(operation.slot, nullptr));
  if (operation.registered != nullptr) memory_.end_large(operation.registered);
  operation.peer.pool.release(operation);
}

void Peers::activate(PeerState& peer) {
  const std::scoped_lock held(peer.mutex);
  if (peer.active) return;
  peer.active = true;
  peer.quiet_since = Clock::now();
  peer.completed_then = peer.completed;
  peer.unacknowledged_since = {};
  active_.push_back(&peer);
}

std::vector<OperationPool::Operations> Peers::deactivate_unused() {
  std::vector<OperationPool::Operations> unused;
  std::erase_if(active_, [&, now = Clock::now()](PeerState* peer) {
    peer->find_last_use(now);
    // The counter of a peer in use is read without its mutex, which stays with the thread that uses the peer.
    if (const std::uint32_t completed = peer->completed;
        std::exchange(peer->completed_at_check, completed) != completed)
      return false;
    const std::scoped_lock held(peer->mutex);
    if (peer->awaits_host() || peer->completed != peer->completed_at_check) return false;
    unused.push_back(peer->pool.take_unused());
    peer->active = false;
    return true;
  });
  return unused;
}

// ---- health ----

std::chrono::seconds PeerHealth::timeout(const PeerState& peer) const {
  if (peer.trials == 0) return timeout_;
  return timeout_.count() > 0 ? std::min(timeout_, Timing::kTrial) : Timing::kTrial;
}

void PeerHealth::check(Clock::time_point now) {
  for (PeerState* const peer : peers_.active()) check(*peer, now);
}

void PeerHealth::check(PeerState& peer, Clock::time_point now) {
  const std::chrono::seconds timeout = this->timeout(peer);
  if (timeout.count() == 0) return;
  if (peer.waits) peer.quiet_since = now;
  if (!quiet(peer, now, half(timeout)) && !peer.can_tell()) return;
  const bool too_long = now - peer.quiet_since >= timeout;
  if (peer.probed) {
    if (too_long) abandon(peer, now, "its adapter acknowledges nothing that is sent to it");
    return;
  }
  const std::optional<ssize_t> code = network_.send_probe(peer);
  if (!code) return;
  if (*code == 0) {
    peer.probed = completes_probes_;
    if (!peer.probed) peer.quiet_since = now;
    return;
  }
  if (*code == -FI_EAGAIN && !too_long) return;
  const std::string error = peer.connect_error();
  abandon(peer, now,
          error.empty() ? fabric_error(ErrorKind::kPeer, "a probe", *code).text : "connecting to it: " + error);
}

void PeerHealth::check_hosts(Clock::time_point now) {
  for (PeerState* const peer : peers_.active()) {
    const std::chrono::seconds timeout = this->timeout(*peer);
    const bool watched = timeout.count() > 0;
    const bool noted = peer->unacknowledged_since != Clock::time_point{};
    const Clock::duration so_long =
        noted ? Clock::duration{} : std::min<Clock::duration>(Timing::kQuiet, half(timeout));
    if (watched && !quiet(*peer, now, so_long)) continue;
    const std::uint32_t notifications = peer->notifications;
    const std::optional<TcpState> state = watched ? network_.tcp_state(*peer) : std::nullopt;
    if (!state || !state->unanswered) {
      peer->unacknowledged_since = {};
      peer->acknowledged = notifications;
      continue;
    }
    if (!noted) peer->unacknowledged_since = now;
    if (state->silent >= timeout && now - peer->unacknowledged_since >= half(timeout))
      abandon(*peer, now, "its host acknowledges nothing that is sent to it");
  }
}

void PeerHealth::abandon(PeerState& peer, Clock::time_point now, const std::string& why) {
  {
    const std::scoped_lock held(peer.mutex);
    ++peer.failures;
  }
  peer.quiet_since = now;
  peer.acknowledged = peer.notifications;
  peer.probed = false;
  network_.abandon(peer, why);
}

}  // namespace farside
