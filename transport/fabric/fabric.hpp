// SPDX-License-Identifier: BSD-3-Clause
// Fabric: the endpoint of this process (endpoint.hpp) by libfabric: RDMA writes and reads, remote atomics, requests to
// message handlers, and their progress. The first window with a peer that only the fabric reaches opens it.
//
// Operations are issued here (fabric.cpp) and complete later. Each is counted in a Pending until it has taken effect at
// the target: an RDMA operation until its completion (FI_DELIVERY_COMPLETE), a message until the handler's reply. Its
// local buffers must stay until then, except operands of at most kCopiedAtCall bytes, which are copied at the call.
//
// Polls of application threads and of the progress thread take completions and messages of peers, answer them, move
// the connections on, and check the peers (fabric_progress.cpp).
//
// Thread safety: all members may be called from any thread; progress.md has the mutexes. An operation on a connected
// peer takes that of the peer, once for each attempt to issue and once when its completion comes. A poll returns at
// once if another thread holds the endpoint's mutex.
//
// Errors: kPeer for operations (also if the peer is abandoned; kRange if a handler refuses a request), kNoMemory if
// memory cannot be registered, kNoRoute when the endpoint is opened. Cost: an operation over TCP takes its origin 5 to
// 10 us. Memory: that of Peers and Connections.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/messages.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/fabric/progress_thread.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class Fabric final : public OpenEndpoint, private PeerHealth::Network, private ProgressThread::Work {
 public:
  // Opens the provider that was found (provider.hpp), begins to listen, and starts the progress thread. For tests:
  // `resolve` is Connections::Opening::resolve, and `openers` threads then open endpoints over any provider. Errors:
  // kNoRoute, kNoMemory or kOther.
  using Resolve = Connections::Resolve;
  static Result<std::unique_ptr<Fabric>> open(InfoHandle info, const Settings& settings, Progress& progress,
                                              Statistics& statistics, Resolve resolve = nullptr,
                                              std::size_t openers = Connections::kMostThreads);
  // Sends the last answers, and ends the thread and the connections.
  ~Fabric() override;

  const FabricAddress& address() const override { return connections_.address(); }
  const char* provider() const override { return domain_.provider(); }
  const char* device() const override { return domain_.device(); }
  Peer insert(const FabricAddress& address) override {
    const std::scoped_lock held(mutex_);
    return peers_.insert(address).number;
  }
  std::size_t share_node(std::size_t processes) override {
    const std::scoped_lock held(mutex_);
    return eviction_.share_node(processes);
  }
  Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) override {
    return domain_.register_memory(base, bytes, wanted);
  }
  bool keys_are_chosen() const override { return domain_.keys_are_chosen(); }
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) override {
    return transfer(pending, Pending::kWrites, place, const_cast<void*>(local), bytes, true);
  }
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) override {
    return transfer(pending, Pending::kReads, place, local, bytes, false);
  }
  bool nic_atomics() const override { return by_value_.has_value(); }
  Status control(Pending& pending, const Place& place, const ControlStep& step, std::uint64_t* fetched) override;
  bool has_message_ring(Peer peer) override;
  Status request(Pending& pending, Peer peer, const HandlerRequest& request,
                 std::unique_ptr<OperationList> list) override;
  bool acknowledges_notifications() const override { return domain_.by_adapter(); }
  std::uint32_t interruptions() const override { return peers_.interruptions(); }
  const PeerLosses& losses(Peer peer) override { return peers_.of(peer).losses; }
  Result<bool> reach(Peer peer) override;
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) override {
    const std::scoped_lock held(mutex_);
    return replies_.handler().publish(id, space);
  }
  void withdraw(std::uint64_t id) override {
    const std::scoped_lock held(mutex_);
    replies_.handler().withdraw(id);
  }

  // A thread that holds the mutex already makes progress, or holds it for a moment only to find out whether another
  // thread does (endpoint_is_busy).
  void poll() override { poll_with(std::unique_lock(mutex_, std::try_to_lock)); }
  void poll_now() override { poll_with(std::unique_lock(mutex_)); }
  bool poll_from_runtime() override;
  void poll_runtime() override { waiting_.poll_runtime(); }
  // Large transfers that this process has issued are expected to move at 1 GB/s. If the thread that waits for them
  // slept, each arrival of data would have to wake the progress thread.
  bool transfers() const override { return monotonic_ns() < transfers_until_.load(std::memory_order_relaxed); }
  void listen(WakeEvent& wake_event) override { thread_.listen(wake_event); }
  void stop_listening(WakeEvent& wake_event) override { thread_.stop_listening(wake_event); }
  void set_on_trial(Peer peer, bool on) override {
    const std::scoped_lock held(mutex_);
    PeerHealth::set_on_trial(peers_.of(peer), on);
  }

 private:
  Fabric(FabricDomain domain, const QueueLimits& limits, const Settings& settings, Progress& progress,
         Statistics& statistics, Resolve resolve, std::size_t openers);

  // Issuing.
  template <class Issue>
  Status issue(Pending& pending, Pending::Class counted, Peer to, const char* what, Issue&& call,
               bool notification = false);
  ssize_t make_ready(PeerState& peer);
  Error out_of_reach(const PeerState& peer, const std::string& why) const;
  Status transfer(Pending& pending, Pending::Class counted, const Place& place, void* local, std::size_t bytes,
                  bool writes);

  // Completions, and messages.
  bool advance();
  bool take_completions();
  void complete(const fi_cq_msg_entry& entry);
  void complete_with_error(const fi_cq_err_entry& entry);
  void receive(std::span<const std::byte> message);
  bool take_from_rings() {
    return connections_.take_messages([this](std::span<const std::byte> message) { receive(message); });
  }
  ssize_t send(Reply& reply);

  // Progress.
  bool poll_with(std::unique_lock<std::mutex> held);
  void check() override;
  void read_connection_events() override {
    if (const std::unique_lock held(mutex_, std::try_to_lock); held) connections_.progress();
  }
  Sleep progress(bool connection_woke) override;
  bool endpoint_is_busy() override { return !std::unique_lock(mutex_, std::try_to_lock); }
  bool may_sleep() override;
  std::optional<ssize_t> send_probe(PeerState& peer) override {
    if (!replies_.room()) return {};
    const std::scoped_lock held(peer.mutex);
    std::unique_ptr<Reply> probe = Replies::take(peer.number, MessageKind::kProbe);
    const bool tells = peer.can_tell();
    if (tells) probe->header = {MessageKind::kProbe, {}, 0, peer.notifications + 1, address().identity};
    const ssize_t code = replies_.send(std::move(probe));
    if (code == 0 && tells) {
      ++peer.notifications;  // that is confirmed, or lost, as they are
      peer.owes_number = false;
    }
    return code;
  }
  std::optional<TcpState> tcp_state(PeerState& peer) override { return connections_.tcp_state(peer); }
  void abandon(PeerState& peer, const std::string& why) override {
    connections_.stop(peer);  // first: the provider must not read what fail_all() gives free
    peers_.fail_all(peer, out_of_reach(peer, why));
  }

  Progress& waiting_;  // of threads that wait to issue
  Statistics& statistics_;
  WakeEvent own_wake_event_;  // of these threads
  // Whether 64-bit atomics take the value of an operand as its address, as verbs does in libfabric before 2.2 (issue
  // 10911). None: the provider has no atomics that work.
  std::optional<bool> by_value_;
  FabricDomain domain_;
  const QueueLimits limits_;
  Peers peers_;

  std::atomic<std::uint64_t> transfers_until_{0};  // see transfers(); of CLOCK_MONOTONIC, in ns
  ProgressThread thread_;

  // Guards the following members, and of the peers what peers.hpp says. Held for microseconds (some milliseconds when a
  // peer is abandoned), and never while waiting or calling out of transport/.
  std::mutex mutex_;
  PeerHealth health_;
  Replies replies_;
  Receives receives_;
  Connections connections_;  // ends before the buffers to which its endpoints may still write, and before thread_
  ConnectionEviction eviction_;
  bool leaving_ = false;                 // the endpoint is being closed
  std::uint64_t read_events_at_ns_ = 0;  // when a poll is to do so next; of CLOCK_MONOTONIC
};

}  // namespace farside
