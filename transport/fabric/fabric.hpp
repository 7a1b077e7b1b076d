// SPDX-License-Identifier: BSD-3-Clause
// Fabric: the endpoint of this process (endpoint.hpp) by libfabric: RDMA writes and reads, remote atomics, requests to
// message handlers, and their progress. The first window with a peer that only the fabric reaches opens it.
//
// It puts the parts of an endpoint together, and each part can be tested alone:
//
//   provider.hpp                the provider, and memory that peers may access
//   connections.hpp           one connection per peer; connections.hpp closes idle ones
//   in_flight.hpp  the issued operations, per peer; buffers.hpp prepares operands and messages for the
//                             provider
//   message_ring.hpp          messages over TCP, by RDMA writes into memory that the receiver polls
//   messages.hpp, messages.hpp messages that are sent besides this process's own operations; receive buffers
//   peers.hpp           detection of peers that are out of reach
//   progress_thread.hpp       the thread that executes what arrives
//   second_rail.hpp           another endpoint, over which halves of large transfers go
//
// Operations are issued here and complete later: each is counted in a Pending, and the thread that takes its
// completion off the queue uncounts it. An operation is complete when it has taken effect at the target
// (FI_DELIVERY_COMPLETE). Its local buffers must stay until then, except operands of at most kCopiedAtCall bytes,
// which are copied at the call. Over an adapter the small writes of a run share one completion
// (in_flight.hpp).
//
// Periodic work visits only active peers and operations in flight, not all peers that are known.
//
// Thread safety: all members may be called from any thread. An operation on a connected peer takes the mutex of that
// peer only (peers.hpp), once for each attempt to issue and once when its completion comes, so that threads with
// different peers do not wait for each other. One mutex guards all other data: connections, messages that arrive, and
// the data of periodic work. A poll returns at once if another thread holds this mutex. Over verbs there is a third
// mutex, that of the slots for operands (buffers.hpp), which is held for a few loads and stores, or for the
// registration of 64 slots.
//
// Errors: kPeer for operations (also if the peer is abandoned; kRange if a handler refuses a request), kNoMemory if
// memory cannot be registered, kNoRoute when the endpoint is opened. Cost: an operation over TCP takes its origin 5 to
// 10 us. Memory: with Connections 128 to 152 bytes per peer, and 240 more once an operation was issued to it.
#pragma once

#include <array>
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
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/connecting.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/in_flight.hpp"
#include "transport/fabric/messages.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peers.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/fabric/progress_thread.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/second_rail.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class Fabric final : public Endpoint, private PeerHealth::Peers, private ProgressThread::Work {
 public:
  // For tests: what Connections::Opening::resolve is, and by how many threads endpoints are opened over any provider.
  using Resolve = std::function<int(const SocketAddress&)>;
  // Opens the provider that was found (provider.hpp), and starts the progress thread. Errors: kNoRoute, kNoMemory or
  // kOther.
  static Result<std::unique_ptr<Fabric>> open(InfoHandle info, const Settings& settings, Progress& progress,
                                              Statistics& statistics, Resolve resolve = nullptr,
                                              std::size_t openers = EndpointOpener::kMostThreads);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() override;

  const FabricAddress& address() const override { return connections_->address(); }
  const char* provider() const { return domain_.provider(); }
  const char* device() const { return domain_.device(); }
  Peer insert(const FabricAddress& address) override;
  // Sets the number of processes of this node, this one included, that use the fabric or may use it. They share the
  // node's resources for connections (connecting.hpp). Only the largest number of all calls counts; before the first
  // call it is 1.
  void share_node(std::size_t processes);
  // Sets the endpoint's second rail: another endpoint of the same provider, null, or the reason why there is none
  // although one was wanted. `network`: that of SecondRail. Called once, before any thread uses the endpoint.
  void set_second(Result<std::unique_ptr<Fabric>> second, std::uint32_t network);
  // The endpoint of the second rail; null if there is none.
  Fabric* second() const { return second_.get(); }
  SecondRail* second_rail() const override { return rail_.get(); }
  // Empty if none was wanted, or there is one.
  const std::string& why_no_second() const { return why_no_second_; }
  // Until the limit is lifted, the peer is abandoned after this time, if FARSIDE_PEER_TIMEOUT is not shorter. The time
  // of other peers does not change. Each limit is lifted once.
  void limit_silence(Peer peer, std::chrono::seconds limit);
  void lift_limit(Peer peer, std::chrono::seconds limit);
  // The limit of connections: FARSIDE_CONNECTIONS, or the process's share if that is smaller; 0: none.
  std::size_t most_connections();
  // As share_node() was told.
  std::size_t node_processes();

  Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) override {
    return domain_.register_memory(base, bytes, wanted);
  }
  bool keys_are_chosen() const override { return domain_.keys_are_chosen(); }
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) override;
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) override;
  Status write_in_run(Pending& pending, const Place& place, const void* local, std::size_t bytes) override;
  void end_run(Pending& pending, Peer peer) override;
  bool nic_atomics() const override { return nic_form_.has_value(); }
  Status control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched) override;
  bool orders_messages_behind_writes() const override { return domain_.orders_messages_behind_writes(); }
  bool has_message_ring(Peer peer) override;
  Status execute(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list) override;
  Status execute_and_control(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                             const ControlStep& step, std::uint64_t* fetched) override;
  Status notify(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                const ControlStep& step, std::uint64_t* fetched) override;
  bool acknowledges_notifications() const override { return domain_.by_adapter(); }
  std::uint32_t lost_notifications(Peer peer) const override { return in_flight_.lost_notifications(peer); }
  Reach reach(Peer peer) override;
  bool has_loss_to_report(Peer peer) const override { return in_flight_.has_loss_to_report(peer); }
  std::uint32_t interruptions() const override { return in_flight_.interruptions(); }
  std::uint32_t last_interruption(Peer peer) const override { return in_flight_.last_interruption(peer); }
  Status execute_locked(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                        const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result) override;
  Status ask_for_regions(Pending& pending, const HandlerPlace& place, std::uint64_t first,
                         std::span<std::byte> page) override;
  Status ask_for_description(Pending& pending, const HandlerPlace& place, std::span<std::byte> description) override;
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) override;
  void withdraw(std::uint64_t id) override;

  // For waiting application threads (Progress). Returns whether anything completed or arrived. Does nothing if another
  // thread has just polled (progress_thread.hpp).
  bool poll();
  // For application threads that test a condition once. Handles everything that has arrived. It waits for the mutex,
  // and does not rely on the poll of another thread, which may have begun before the arrival.
  void poll_now();
  // For threads that wait in the MPI runtime, called repeatedly from its progress engine: polls while the progress
  // thread leaves arrivals to them (progress_thread.hpp), else costs two loads and a store.
  bool poll_from_runtime();
  // Returns whether large transfers that this process has issued are expected to move now, at 1 GB/s. If the
  // thread that waits for them slept, each arrival of data would have to wake the progress thread.
  bool transfers() const { return monotonic_ns() < transfers_until_.load(std::memory_order_relaxed); }
  void listen(WakeEvent& wake_event) { thread_.listen(wake_event); }
  void stop_listening(WakeEvent& wake_event) { thread_.stop_listening(wake_event); }

 private:
  using Clock = std::chrono::steady_clock;

  Fabric(FabricDomain domain, const QueueLimits& limits, const Settings& settings, Progress& progress,
         Statistics& statistics)
      : domain_(std::move(domain)),
        limits_(limits),
        progress_(progress),
        statistics_(statistics),
        in_flight_(limits.runs),
        health_(in_flight_.peers(), *this, domain_.by_adapter(), std::chrono::seconds(settings.peer_timeout)),
        replies_(limits.answers, in_flight_.memory()),
        receives_(limits, in_flight_.memory()) {}
  // The form of 64-bit atomics. In libfabric before 2.2, verbs uses the address of an operand as its value (issue
  // 10911), so the value must be given as the address. Some adapters return fetched values in the other byte order
  // (fi_verbs(7)).
  struct NicForm {
    bool by_value = false;
    bool swapped = false;
  };

  Status set_up(const Settings& settings, Resolve resolve, std::size_t openers);
  std::string try_nic_atomics();
  Status nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand, const std::uint64_t* compare,
                    std::uint64_t* fetched);
  FabricHandle<fid_mr> register_large(const void* base, std::size_t bytes, std::uint64_t access);
  template <class IssuePart>
  Status issue_parts(const void* local, std::size_t bytes, std::uint64_t access, IssuePart&& issue_part);
  template <class Issue>
  Status issue(Pending& pending, Peer peer, const char* what, Issue&& call);
  ssize_t make_ready(PeerState& peer_state);
  ssize_t join_run(PeerState& peer_state, Pending& pending, const Place& place, const void* local, std::size_t bytes);
  void end_run(PeerState& peer_state, const Pending* pending);
  // A request without its list, its place and its operation.
  struct Request {
    RequestHeader header{};  // `controls` is the number of steps
    std::array<ControlStep, kMostControls> steps{};
    std::span<std::byte> fetched;
    LockedResult* locked_result = nullptr;  // instead of `fetched`, for a list between two steps
  };
  Status send_request(Pending& pending, const HandlerPlace& place, const Request& request,
                      std::unique_ptr<OperationList> list);
  Error out_of_reach(Peer peer, const std::string& why) const;
  Error not_taken(Peer peer, const char* what);

  // Completions (fabric_completions.cpp).
  bool advance();
  bool take_completions();
  void complete(const fi_cq_msg_entry& entry);
  void complete_with_error();
  void drop_replies(Peer peer, const std::string& why, bool in_order);

  // Messages (fabric_messages.cpp).
  void receive(std::span<const std::byte> message);
  bool execute_request(Peer sender, std::span<const std::byte> message);
  void execute_deferred();
  bool take_from_rings();
  ssize_t send(Reply& reply);
  void send_replies();
  void finish_answers();

  // Progress (fabric_progress.cpp).
  bool idle() const;
  void end_long_sleep();
  bool advance_for(int thread, std::uint64_t begin_ns);
  bool advance_safely(int thread, std::uint64_t begin_ns);
  void check() override;
  void end_silent_connections();
  void read_connection_events() override;
  Sleep progress(bool connection_woke) override;
  bool endpoint_is_busy() override { return !std::unique_lock(mutex_, std::try_to_lock); }
  bool others_poll_now() override { return polls_.polled_just_now(monotonic_ns()) || endpoint_is_busy(); }
  bool may_sleep() override;
  bool waits_for_place(Peer peer) const override { return connections_->waits_for_place(peer); }
  std::optional<ssize_t> send_probe(Peer peer) override;
  std::string connect_error(Peer peer) const override { return connections_->connect_error(peer); }
  std::optional<TcpPath> tcp_path(Peer peer) const override { return connections_->tcp_path(peer); }
  std::uint64_t connection_number(Peer peer) const override { return connections_->number(peer); }
  void found_socket(Peer peer, int socket) override { connections_->found_socket(peer, socket); }
  void abandon(PeerState& peer_state, const std::string& why) override;

  FabricDomain domain_;
  const QueueLimits limits_;
  Progress& progress_;
  Statistics& statistics_;
  std::unique_ptr<Connections> connections_;
  std::optional<NicForm> nic_form_;  // none: the provider has no atomics that work
  OperationsInFlight in_flight_;

  // Guards the members from health_ to deferred_, connections_, and of the peer states what peers.hpp says. Held
  // for microseconds (some milliseconds when a peer is abandoned), and never while waiting or calling out of
  // transport/.
  std::mutex mutex_;
  PeerHealth health_;
  Replies replies_;
  Receives receives_;
  std::optional<ConnectionEviction> eviction_;  // always, once the endpoint is open
  bool sleeps_long_ = false;                    // the progress thread sleeps, or is about to: no peer is active
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

  // Notes that a write or read of so many bytes was issued.
  void expect_transfer(std::size_t bytes);

  std::unique_ptr<Fabric> second_;
  std::unique_ptr<SecondRail> rail_;  // of second_
  std::string why_no_second_;

  WakeEvent own_wake_event_;  // of threads that wait to issue
  std::atomic<std::uint64_t> transfers_until_{0};  // see transfers(); of CLOCK_MONOTONIC, in ns
  SharedPolls polls_;
  ProgressThread thread_;
};

}  // namespace farside
