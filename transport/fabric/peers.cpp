// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/peers.hpp"

#include <algorithm>
#include <bit>

#include "transport/base/result.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/handles.hpp"

namespace farside {

PeerState& PeerStates::make(Peer peer) {
  const std::scoped_lock held(making_);
  if (PeerState* const state = find(peer)) return *state;
  const std::span<Place> before = places_.get();
  if (peer >= before.size()) {
    constexpr std::size_t kLeast = 16;
    places_.replace(std::max(std::bit_ceil(std::size_t{peer} + 1), kLeast), [&](std::span<Place> places) {
      for (std::size_t i = 0; i < before.size(); ++i)
        places[i].store(before[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    });
  }
  made_.push_back(std::make_unique<PeerState>(peer));
  places_.get()[peer].store(made_.back().get(), std::memory_order_release);
  return *made_.back();
}

namespace {

// Returns whether operations are in flight towards the peer, and none has completed for `so_long`.
bool quiet(PeerState& peer_state, PeerHealth::Clock::time_point now, PeerHealth::Clock::duration so_long) {
  const std::uint32_t completed = peer_state.completed;
  const bool any = peer_state.awaits_host();
  const bool moved = completed != peer_state.completed_then || peer_state.begun;
  peer_state.completed_then = completed;
  if (peer_state.begun) peer_state.begun = false;
  if (!any || moved) {
    peer_state.quiet_since = now;
    peer_state.unacknowledged_since = {};
  }
  return any && now - peer_state.quiet_since >= so_long;
}

PeerHealth::Clock::duration half(std::chrono::seconds timeout) { return PeerHealth::Clock::duration(timeout) / 2; }

}  // namespace

std::chrono::seconds PeerHealth::timeout(Peer peer) const {
  const PeerState* const state = states_.find(peer);
  if (state == nullptr || state->trials == 0) return timeout_;
  return timeout_.count() > 0 ? std::min(timeout_, Timing::kTrial) : Timing::kTrial;
}

void PeerHealth::check(Clock::time_point now) {
  for (PeerState* const peer_state : states_.active()) check(*peer_state, now);
}

void PeerHealth::check(PeerState& peer_state, Clock::time_point now) {
  const std::chrono::seconds timeout = this->timeout(peer_state.peer);
  if (timeout.count() == 0) return;
  // The peer may well be in reach.
  if (peers_.waits_for_place(peer_state.peer)) peer_state.quiet_since = now;
  if (!quiet(peer_state, now, half(timeout))) return;
  const bool too_long = now - peer_state.quiet_since >= timeout;
  if (peer_state.probed) {
    if (too_long) abandon(peer_state, now, "its adapter acknowledges nothing that is sent to it");
    return;
  }
  const std::optional<ssize_t> code = peers_.send_probe(peer_state.peer);
  if (!code) return;
  if (*code == 0) {
    peer_state.probed = completes_probes_;
    if (!peer_state.probed) peer_state.quiet_since = now;
    return;
  }
  if (*code == -FI_EAGAIN && !too_long) return;
  const std::string error = peers_.connect_error(peer_state.peer);
  abandon(peer_state, now,
          error.empty() ? fabric_error(ErrorKind::kPeer, "a probe", *code).text : "connecting to it: " + error);
}

void PeerHealth::check_hosts(Clock::time_point now) {
  for (PeerState* const peer_state : states_.active()) {
    const std::chrono::seconds timeout = this->timeout(peer_state->peer);
    const bool watched = timeout.count() > 0;
    const bool noted = peer_state->unacknowledged_since != Clock::time_point{};
    if (watched && !quiet(*peer_state, now, noted ? Clock::duration{} : Timing::kQuiet)) continue;
    const std::uint32_t notifications = peer_state->notifications;
    const std::optional<TcpState> state = watched ? peers_.tcp_state(peer_state->peer) : std::nullopt;
    if (!state || !state->unanswered) {
      peer_state->unacknowledged_since = {};
      peer_state->acknowledged = notifications;
      continue;
    }
    if (!noted) peer_state->unacknowledged_since = now;
    if (state->silent >= timeout && now - peer_state->unacknowledged_since >= half(timeout))
      abandon(*peer_state, now, "its host acknowledges nothing that is sent to it");
  }
}

void PeerHealth::abandon(PeerState& peer_state, Clock::time_point now, const std::string& why) {
  {
    const std::scoped_lock held(peer_state.mutex);
    ++peer_state.failures;
  }
  peer_state.quiet_since = now;
  peer_state.acknowledged = peer_state.notifications;
  peer_state.probed = false;
  peers_.abandon(peer_state, why);
}

}  // namespace farside
