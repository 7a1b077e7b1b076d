// SPDX-License-Identifier: BSD-3-Clause
// PeerHealth: finds the peers that stay out of reach for FARSIDE_PEER_TIMEOUT, among those with operations under way,
// and abandons them. It does not abandon a peer that is only slow.
//
// It sends a probe to a peer towards which nothing has completed for half the timeout. The probe needs no answer, since
// the peer may be stopped; but the provider accepts no probe to a dead peer. An adapter accepts any probe, and must
// have completed it before the timeout. A socket's buffer accepts a probe even if the cable is cut. Over TCP,
// PeerHealth therefore reads the state of the connections from the kernel (tcp_path.hpp). It abandons a peer if the
// peer's host has sent nothing for the whole timeout, not even acknowledgements, while data were unacknowledged for
// half of it.
//
// Thread safety: timeout() without a peer and read_states() may be called from any thread, all other members under
// Fabric's mutex. Errors: none of its own. Cost: check() and quiet_paths() a few loads per active peer, at regular
// times only; read_states() a millisecond where a socket must be searched for. Memory: in PeerState.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/fabric/peer_states.hpp"
#include "transport/fabric/tcp_path.hpp"

namespace farside {

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
    // The present connection, where it is one of TCP; and its descriptor, once it was found.
    virtual std::optional<TcpPath> tcp_path(Peer peer) const = 0;
    virtual std::uint64_t connection_number(Peer peer) const = 0;
    virtual void found_socket(Peer peer, int socket) = 0;
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
  // The peer is abandoned after this time, if FARSIDE_PEER_TIMEOUT is not shorter, until this limit is lifted. Several
  // threads may each set one.
  void limit_silence(Peer peer, std::chrono::seconds limit) { limits_.push_back({peer, limit}); }
  void lift_limit(Peer peer, std::chrono::seconds limit);

  // Sends probes, and abandons peers.
  void check(Clock::time_point now);
  static void probe_completed(PeerState& peer_state, Clock::time_point now) {
    peer_state.probed = false;
    peer_state.quiet_since = now;
  }
  static void probe_failed(PeerState& peer_state) { peer_state.probed = false; }

  // A connection over which operations stay under way, and what the kernel says of it.
  struct QuietPath {
    Peer peer;
    TcpPath path;
    std::optional<TcpState> state;
    std::uint32_t notifications = 0;  // that were sent by then
  };
  // Gives the connections to look at.
  std::vector<QuietPath> quiet_paths(Clock::time_point now);
  // Reads their states.
  static void read_states(std::vector<QuietPath>& paths);
  // Abandons peers whose hosts acknowledge nothing.
  void abandon_silent(const std::vector<QuietPath>& paths, Clock::time_point now);

 private:
  void check(PeerState& peer_state, Clock::time_point now);
  void abandon(PeerState& peer_state, Clock::time_point now, const std::string& why);

  PeerStates& states_;
  Peers& peers_;
  const bool completes_probes_;
  const std::chrono::seconds timeout_;
  struct Limit {
    Peer peer;
    std::chrono::seconds after;
    bool operator==(const Limit&) const = default;
  };
  std::vector<Limit> limits_;  // mostly none
};

}  // namespace farside
