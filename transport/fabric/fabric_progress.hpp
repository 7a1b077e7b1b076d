// SPDX-License-Identifier: BSD-3-Clause
// FabricProgress: what moves the endpoint on (fabric.hpp): it opens the connections, takes completions and messages of
// peers, answers them, and checks the peers, in polls of application threads and in the progress thread.
//
// Periodic work visits only active peers and operations in flight, not all peers that are known.
//
// Thread safety: any thread may call all members, after start(). One mutex guards the data of connections, of messages
// that arrive, and of periodic work. A poll returns immediately if another thread holds this mutex. Errors: those of
// Fabric.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/in_flight.hpp"
#include "transport/fabric/messages.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/progress_thread.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class FabricProgress final : public EndpointProgress, private PeerHealth::Peers, private ProgressThread::Work {
 public:
  FabricProgress(FabricDomain domain, const QueueLimits& limits, const Settings& settings, Statistics& statistics)
      : domain_(std::move(domain)),
        limits_(limits),
        statistics_(statistics),
        health_(in_flight_.peers(), *this, domain_.by_adapter(), std::chrono::seconds(settings.peer_timeout)),
        replies_(limits.answers, in_flight_.memory(), [this](Reply& reply) { return send(reply); }),
        receives_(limits, in_flight_.memory()) {}
  FabricProgress(const FabricProgress&) = delete;
  FabricProgress& operator=(const FabricProgress&) = delete;
  // Sends the last answers, and ends the thread and the connections.
  ~FabricProgress();
  // Begins to listen, and starts the progress thread. `resolve`: Connections::Opening::resolve. Errors: kNoRoute,
  // kNoMemory or kOther.
  Status start(const Settings& settings, ConnectionEndpoints::Resolve resolve, std::size_t openers);

  const FabricDomain& domain() const { return domain_; }
  const QueueLimits& limits() const { return limits_; }
  OperationsInFlight& in_flight() { return in_flight_; }
  const OperationsInFlight& in_flight() const { return in_flight_; }
  const FabricAddress& address() const { return connections_->address(); }
  Peer insert(const FabricAddress& address) {
    const std::scoped_lock held(mutex_);
    return connections_->insert(address);
  }
  // As Fabric::share_node(), for this endpoint alone.
  void share_node(std::size_t processes);
  void set_on_trial(Peer peer, bool on) override {
    const std::scoped_lock held(mutex_);
    health_.set_on_trial(peer, on);
  }
  // The number that share_node() was told.
  std::size_t node_processes() {
    const std::scoped_lock held(mutex_);
    return eviction_->node_processes();
  }
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) {
    const std::scoped_lock held(mutex_);
    return handler_.publish(id, space);
  }
  void withdraw(std::uint64_t id) {
    const std::scoped_lock held(mutex_);
    handler_.withdraw(id);
  }

  // Gives the peer an endpoint, if it is connected, and makes it active. Returns what Connections::reach() does. Called
  // without the peer's mutex. Another thread may take the endpoint away at once.
  ssize_t make_ready(PeerState& peer_state);
  Reach reach(Peer peer);
  // Returns the reason why an operation was never issued to a peer that is out of reach.
  Error not_taken(Peer peer, const char* what);

  // Notes that an application thread is about to issue an operation: the progress thread backs off.
  void polled() { thread_.polled(); }
  // Notes that a write or read of so many bytes was issued.
  void expect_transfer(std::size_t bytes);
  bool poll() override;
  void poll_now() override { poll_with(std::unique_lock(mutex_)); }
  bool poll_from_runtime() override;
  bool transfers() const override { return monotonic_ns() < transfers_until_.load(std::memory_order_relaxed); }
  void listen(WakeEvent& wake_event) override { thread_.listen(wake_event); }
  void stop_listening(WakeEvent& wake_event) override { thread_.stop_listening(wake_event); }

 private:
  using Clock = std::chrono::steady_clock;

  Error out_of_reach(Peer peer, const std::string& why) const;

  // Completions.
  bool advance();
  bool take_completions();
  void complete(const fi_cq_msg_entry& entry);
  void complete_with_error();
  void drop_replies(Peer peer, const std::string& why, bool in_order);

  // Messages.
  void receive(std::span<const std::byte> message);
  bool execute_request(Peer sender, std::span<const std::byte> message);
  void execute_deferred();
  bool take_from_rings();
  ssize_t send(Reply& reply);
  void finish_answers();

  // Progress.
  bool poll_with(std::unique_lock<std::mutex> held);
  void check() override;
  void end_silent_connections(Clock::time_point now);
  void read_connection_events() override;
  Sleep progress(bool connection_woke) override;
  bool endpoint_is_busy() override { return !std::unique_lock(mutex_, std::try_to_lock); }
  bool may_sleep() override;
  bool waits_for_place(Peer peer) const override { return connections_->waits_for_place(peer); }
  std::optional<ssize_t> send_probe(Peer peer) override;
  std::string connect_error(Peer peer) const override { return connections_->connect_error(peer); }
  std::optional<TcpState> tcp_state(Peer peer) override { return connections_->tcp_state(peer); }
  void abandon(PeerState& peer_state, const std::string& why) override;

  FabricDomain domain_;
  const QueueLimits limits_;
  Statistics& statistics_;
  std::unique_ptr<Connections> connections_;
  OperationsInFlight in_flight_;

  // Guards the members from health_ to deferred_, connections_, and of the peer states what peers.hpp says. Held
  // for microseconds (some milliseconds when a peer is abandoned), and never while waiting or calling out of
  // transport/.
  std::mutex mutex_;
  PeerHealth health_;
  Replies replies_;
  Receives receives_;
  std::optional<ConnectionEviction> eviction_;  // always, once the endpoint is open
  bool leaving_ = false;                        // the endpoint is being closed
  std::uint64_t read_events_at_ns_ = 0;         // when a poll is to do so next; of CLOCK_MONOTONIC
  Clock::time_point look_for_silence_at_{};     // used by the progress thread only
  MessageHandler handler_;
  // Requests that wait for an accumulate lock, and later ones of their senders, which limit them.
  struct Deferred {
    Peer sender;
    std::vector<std::byte> message;
  };
  std::deque<Deferred> deferred_;

  std::atomic<std::uint64_t> transfers_until_{0};  // see transfers(); of CLOCK_MONOTONIC, in ns
  ProgressThread thread_;
};

}  // namespace farside
