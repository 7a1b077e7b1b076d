// SPDX-License-Identifier: BSD-3-Clause
// PeerStates: what Fabric keeps of each peer to which it has issued an operation, and which of these peers are active:
// some operation towards them is under way. A process may know ten thousand peers and use ten. All that Fabric does at
// regular times, or when a connection ends, therefore goes over the active peers or over the operations of one peer.
//
// Not thread-safe: Fabric's mutex guards it. Memory: 8 bytes per peer, and 80 more for each that was used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/fabric/operation.hpp"

namespace farside {

// The operations towards one peer that the provider has, linked by their own pointers.
class IssuedOperations {
 public:
  bool empty() const { return first_ == nullptr; }
  void add(Operation& operation) {
    operation.previous = nullptr;
    operation.next = first_;
    if (first_ != nullptr) first_->previous = &operation;
    first_ = &operation;
  }
  void remove(Operation& operation) {
    (operation.previous != nullptr ? operation.previous->next : first_) = operation.next;
    if (operation.next != nullptr) operation.next->previous = operation.previous;
    operation.previous = operation.next = nullptr;
  }
  // `act` may remove the operation that it gets, and no other.
  template <class Do>
  void for_each(Do&& act) {
    for (Operation* each = first_; each != nullptr;) {
      Operation* const next = each->next;
      act(*each);
      each = next;
    }
  }

 private:
  Operation* first_ = nullptr;
};

struct PeerState {
  using Clock = std::chrono::steady_clock;
  explicit PeerState(Peer which) : peer(which) {}

  const Peer peer;
  std::uint32_t under_way = 0;       // operations issued, or being issued
  std::uint32_t requests = 0;        // of them requests to the handler that the provider has taken
  std::uint32_t completed = 0;       // operations since the start
  std::uint32_t completed_then = 0;  // `completed` at quiet_since
  std::uint32_t failures = 0;        // how often the peer was abandoned
  std::uint32_t place = 0;           // among the active peers
  bool probed = false;               // an adapter has a probe
  IssuedOperations issued;
  Clock::duration patience{};  // the time without use after which the connection may be evicted; zero: the shortest
  Clock::time_point last_issued{};  // kept where connections are limited in number
  Clock::time_point quiet_since{};  // since then nothing has completed, nor was a probe taken (adapter: acknowledged)
  Clock::time_point
      unacknowledged_since{};  // since then nothing has completed, and TCP awaits an acknowledgement; else zero
};

class PeerStates {
 public:
  // Returns the state of the peer, and makes it at the first use.
  PeerState& of(Peer peer) {
    if (peer >= states_.size()) [[unlikely]]
      states_.resize(peer + 1);
    if (states_[peer] == nullptr) [[unlikely]]
      states_[peer] = std::make_unique<PeerState>(peer);
    return *states_[peer];
  }
  // Null if there is none yet.
  const PeerState* find(Peer peer) const { return peer < states_.size() ? states_[peer].get() : nullptr; }
  bool is_active(Peer peer) const {
    const PeerState* const state = find(peer);
    return state != nullptr && state->under_way > 0;
  }

  // Counts an operation that is under way from now on, and one that no longer is.
  void begin(PeerState& state) {
    if (state.under_way++ > 0) return;
    state.quiet_since = PeerState::Clock::now();
    state.unacknowledged_since = {};
    state.place = static_cast<std::uint32_t>(active_.size());
    active_.push_back(&state);
    ++activations_;
  }
  void end(PeerState& state) {
    if (--state.under_way > 0) return;
    active_[state.place] = active_.back();
    active_[state.place]->place = state.place;
    active_.pop_back();
  }
  std::span<PeerState* const> active() const { return active_; }
  // Calls act(PeerState&) for each active peer. `act` may end operations of the peer that it gets, and of no other.
  template <class Do>
  void for_each_busy(Do&& act) {
    for (std::size_t i = active_.size(); i-- > 0;) act(*active_[i]);
  }
  // How often a peer has become active.
  std::uint64_t activations() const { return activations_; }

 private:
  std::vector<std::unique_ptr<PeerState>> states_;  // by peer
  std::vector<PeerState*> active_;
  std::uint64_t activations_ = 0;
};

}  // namespace farside
