// SPDX-License-Identifier: BSD-3-Clause
// PeerStates: the state of each peer to which Fabric has issued an operation, and the list of active peers, towards
// which operations were begun lately. A process may know ten thousand peers and use ten. Periodic work, and the work at
// the end of a connection, therefore visits only the active peers or the operations of one peer.
//
// Thread safety: each peer has a mutex of its own, so that threads issue to different peers at once. Fabric's mutex
// guards the data of periodic work. A thread that takes both takes Fabric's mutex first, and no thread holds the
// mutexes of two peers. Memory: 8 to 32 bytes per peer, and 240 more for each that was used.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/growing_array.hpp"
#include "transport/base/threads.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

struct PeerState {
  using Clock = std::chrono::steady_clock;
  explicit PeerState(Peer which) : peer(which), pool(which) {}

  const Peer peer;

  // Guards the following members, up to `pool`; held for one attempt to issue, or one completion.
  BiasedMutex mutex;
  // The connection by which operations are issued. Null: Connections::reach() must be called first.
  fid_ep* endpoint = nullptr;
  bool active = false;          // changes only with Fabric's mutex held, too
  RelaxedFlag begun;            // an operation was begun while none was in flight (PeerHealth)
  RelaxedCount in_flight;       // operations issued, or being issued
  std::uint32_t requests = 0;   // of them requests to the handler that the provider has taken
  RelaxedCount completed;       // operations since the start
  std::uint32_t failures = 0;   // how often the peer was abandoned
  RelaxedCount notifications;   // that were sent
  std::uint32_t confirmed = 0;  // of them, the first so many have arrived, or are known to be lost
  PeerLosses losses;            // also read without the mutex
  OperationPool pool;

  RelaxedFlag used;  // an operation was issued since PeerStates::last_use() was called

  // Guarded by Fabric's mutex:
  std::uint32_t acknowledged = 0;  // of the notifications; TCP has none of them left, or the connection has ended
  Clock::time_point last_use{};
  bool probed = false;                   // an adapter has a probe
  std::uint8_t trials = 0;               // set_on_trial()
  std::uint32_t completed_then = 0;      // `completed` at quiet_since
  std::uint32_t completed_at_check = 0;  // `completed` at the last call of PeerStates::deactivate_unused()
  Clock::duration idle_limit{};     // the time without use after which the connection may be evicted; zero: the lowest
  Clock::time_point quiet_since{};  // since then nothing has completed, nor was a probe taken (adapter: acknowledged)
  Clock::time_point
      unacknowledged_since{};  // since then nothing has completed, and TCP awaits an acknowledgement; else zero

  // Returns whether operations can be issued. With the peer's mutex held.
  bool ready() const { return endpoint != nullptr && active; }
  // Returns whether the peer must be watched: operations are in flight, or its host may not have received a
  // notification that TCP has accepted.
  bool awaits_host() const { return in_flight > 0 || notifications != acknowledged; }
  bool any_in_flight() {
    const std::scoped_lock held(mutex);
    return in_flight > 0;
  }
};

class PeerStates {
 public:
  // Returns the state of the peer, and makes it at the first use. Any thread.
  PeerState& of(Peer peer) {
    if (PeerState* const state = find(peer)) [[likely]]
      return *state;
    return make(peer);
  }
  // Null if there is none yet. Any thread.
  PeerState* find(Peer peer) const {
    const std::span<const Place> places = places_.get();
    return peer < places.size() ? places[peer].load(std::memory_order_acquire) : nullptr;
  }
  bool any_in_flight(Peer peer) const {
    PeerState* const state = find(peer);
    return state != nullptr && state->any_in_flight();
  }
  // Returns whether the provider has operations towards the peer.
  bool any_issued(Peer peer) const {
    PeerState* const state = find(peer);
    if (state == nullptr) return false;
    const std::scoped_lock held(state->mutex);
    bool any = false;
    state->pool.for_each([&](const Operation& operation) { any = any || operation.pending != nullptr; });
    return any;
  }

  // From now on each operation towards the peer calls Connections::reach() first.
  void withdraw_endpoint(Peer peer) const {
    PeerState* const state = find(peer);
    if (state == nullptr) return;
    const std::scoped_lock held(state->mutex);
    state->endpoint = nullptr;
  }

  // Counts an operation that is in flight from now on, and one that no longer is. With the peer's mutex held.
  static void begin(PeerState& state) {
    if (state.in_flight == 0) state.begun = true;
    ++state.in_flight;
  }
  static void end(PeerState& state) { --state.in_flight; }

  // The following members with Fabric's mutex held.
  // Returns when an operation was last issued to the peer. To issue an operation reads no clock. Instead, the time of a
  // use is that of the first call of this function afterwards, which is the next check of active peers at the latest.
  static PeerState::Clock::time_point last_use(PeerState& state, PeerState::Clock::time_point now) {
    if (state.used) {
      state.used = false;
      state.last_use = now;
    }
    return state.last_use;
  }
  // Makes the peer active.
  void activate(PeerState& state) {
    const std::scoped_lock held(state.mutex);
    if (state.active) return;
    state.active = true;
    state.quiet_since = PeerState::Clock::now();
    state.completed_then = state.completed;
    state.unacknowledged_since = {};
    active_.push_back(&state);
  }
  // Ends the activity of peers towards which no operation is in flight, nor has completed since the last call. Returns
  // their operations, which may be many, to be freed without the mutex.
  std::vector<OperationPool::Operations> deactivate_unused() {
    std::vector<OperationPool::Operations> unused;
    std::erase_if(active_, [&, now = PeerState::Clock::now()](PeerState* state) {
      last_use(*state, now);
      // The counter of a peer in use is read without its mutex, which stays with the thread that uses the peer.
      if (const std::uint32_t completed = state->completed;
          std::exchange(state->completed_at_check, completed) != completed)
        return false;
      const std::scoped_lock held(state->mutex);
      if (state->awaits_host()) return false;
      if (state->completed != state->completed_at_check) return false;
      unused.push_back(state->pool.take_unused());
      state->active = false;
      return true;
    });
    return unused;
  }
  std::span<PeerState* const> active() const { return active_; }

 private:
  using Place = std::atomic<PeerState*>;
  PeerState& make(Peer peer);

  GrowingArray<Place> places_;  // by peer
  std::mutex making_;           // guards the places against other writers, and made_
  std::vector<std::unique_ptr<PeerState>> made_;
  std::vector<PeerState*> active_;
};

// PeerHealth: finds the peers that stay out of reach for FARSIDE_PEER_TIMEOUT, among those with operations in flight,
// and abandons them. It does not abandon a peer that is only slow.
//
// It sends a probe to a peer towards which nothing has completed for half the timeout. The probe needs no answer, since
// the peer may be stopped; but the provider accepts no probe to a dead peer. An adapter accepts any probe, and must
// have completed it before the timeout. A socket's buffer accepts a probe even if the cable is cut. Over TCP,
// PeerHealth therefore reads the state of the connections from the kernel (sockets.hpp). It abandons a peer if the
// peer's host has sent nothing for the whole timeout, not even acknowledgements, while data were unacknowledged for
// half of it.
//
// Thread safety: timeout() without a peer may be called from any thread, all other members under Fabric's mutex.
// Errors: none of its own. Cost: a few loads per active peer, at regular times only, and three system calls per quiet
// peer. Memory: in PeerState.
class PeerHealth {
 public:
  using Clock = std::chrono::steady_clock;
  // The interface to the endpoint.
  class Peers {
   public:
    // Returns whether no attempt has shown yet whether the peer is in reach.
    virtual bool waits_for_place(Peer peer) const = 0;
    // Sends a probe. Returns 0 or a negative libfabric code; none: nothing more can be sent now.
    virtual std::optional<ssize_t> send_probe(Peer peer) = 0;
    // The error of the last attempt to connect to the peer; empty if it succeeded.
    virtual std::string connect_error(Peer peer) const = 0;
    // What the kernel knows of the present connection, where it is one of TCP.
    virtual std::optional<TcpState> tcp_state(Peer peer) = 0;
    // Ends the connection to the peer, and fails the operations towards it.
    virtual void abandon(PeerState& peer_state, const std::string& why) = 0;

   protected:
    ~Peers() = default;
  };

  // `completes_probes`: the connections are an adapter's, which completes a probe when the peer's adapter has
  // acknowledged it. `timeout`: FARSIDE_PEER_TIMEOUT; 0: none.
  PeerHealth(PeerStates& states, Peers& peers, bool completes_probes, std::chrono::seconds timeout)
      : states_(states), peers_(peers), completes_probes_(completes_probes), timeout_(timeout) {}

  // FARSIDE_PEER_TIMEOUT; 0: none.
  std::chrono::seconds timeout() const { return timeout_; }
  // Returns the time after which this peer is abandoned; 0: it is never abandoned.
  std::chrono::seconds timeout(Peer peer) const;
  // A peer on trial is abandoned after Timing::kTrial, if FARSIDE_PEER_TIMEOUT is not shorter. Several threads may have
  // the same peer on trial; each ends its own.
  void set_on_trial(Peer peer, bool on) { states_.of(peer).trials += on ? 1 : -1; }

  // Sends probes, and abandons peers.
  void check(Clock::time_point now);
  static void probe_completed(PeerState& peer_state, Clock::time_point now) {
    peer_state.probed = false;
    peer_state.quiet_since = now;
  }
  static void probe_failed(PeerState& peer_state) { peer_state.probed = false; }

  // Over TCP: abandons peers whose hosts acknowledge nothing.
  void check_hosts(Clock::time_point now);

 private:
  void check(PeerState& peer_state, Clock::time_point now);
  void abandon(PeerState& peer_state, Clock::time_point now, const std::string& why);

  PeerStates& states_;
  Peers& peers_;
  const bool completes_probes_;
  const std::chrono::seconds timeout_;
};

}  // namespace farside
