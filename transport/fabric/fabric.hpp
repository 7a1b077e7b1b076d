// SPDX-License-Identifier: BSD-3-Clause
// Fabric: the endpoint of this process (endpoint.hpp) by libfabric: RDMA writes and reads, remote atomics, requests to
// message handlers, and their progress. The first window with a peer that only the fabric reaches opens it.
// connections.hpp has the connections.
//
// Operations are issued here and complete later: each is counted in a Pending, and the thread that takes its
// completion off the queue uncounts it. An operation is complete when it has taken effect at the target
// (FI_DELIVERY_COMPLETE). Its local buffers must stay until then, except operands of at most kCopiedAtCall bytes,
// which are copied at the call.
//
// A peer that stays out of reach for FARSIDE_PEER_TIMEOUT (it cannot be connected to, it takes nothing more, or its
// host or adapter acknowledges nothing) is abandoned: the operations towards it fail. A peer that is only slow is
// waited for.
//
// Progress: the progress thread sleeps on the completion queue's file descriptor and executes what arrives, so that a
// target that computes never delays an origin. While application threads poll, the progress thread backs off; while
// they sleep, it wakes them. It checks the peers with operations under way four times per second. All work at regular
// times goes over what is under way, not over what is known.
//
// Thread safety: all members may be called from any thread; one mutex guards the endpoint. Errors: kPeer for
// operations (kRange if a handler refuses a request), kNoMemory if memory cannot be registered, kNoRoute when the
// endpoint is opened. Cost: an operation over TCP takes its origin 5 to 10 us. Memory: with Connections 128 bytes per
// peer, and 80 more once an operation was issued to it.
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
#include <thread>
#include <vector>

#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/unique_fd.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/adaptive_polling.hpp"
#include "transport/fabric/connections.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/listening.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/peer_states.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/queue_limits.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class Fabric final : public Endpoint {
 public:
  // For tests: what Connections::Opening::resolve is, and that a thread opens endpoints over every provider.
  using Resolve = std::function<int(const SocketAddress&)>;
  // Opens the provider that was found (provider.hpp), and starts the progress thread. Errors: kNoRoute, kNoMemory or
  // kOther.
  static Result<std::unique_ptr<Fabric>> open(InfoHandle info, const Settings& settings, Progress& progress,
                                              Statistics& statistics, Resolve resolve = nullptr);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() override;

  const FabricAddress& address() const override { return connections_->address(); }
  const char* provider() const { return info_->fabric_attr->prov_name; }
  const char* device() const { return info_->domain_attr->name; }
  Peer insert(const FabricAddress& address) override;
  // Says that so many processes of this node, this one included, use the fabric or may do so. They share what the node
  // has for connections (node_share.hpp). The largest number that was said counts; before the first call it is 1.
  void share_node(std::size_t processes);
  // From now on peers are abandoned after this time, at most FARSIDE_PEER_TIMEOUT; without a value, after that one.
  void limit_silence(std::optional<std::chrono::seconds> limit);
  // The limit of connections: FARSIDE_CONNECTIONS, or the process's share if that is smaller; 0: none.
  std::size_t most_connections();
  // As share_node() was told.
  std::size_t node_processes();

  Result<Registration> expose(void* base, std::size_t bytes, std::uint64_t wanted) override;
  bool keys_are_chosen() const override;
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) override;
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) override;
  bool nic_atomics() const override { return nic_form_ != NicForm::kNone; }
  Status control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched) override;
  bool orders_messages_behind_writes() const override { return orders_messages_behind_writes_; }
  Status execute(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list) override;
  Status execute_and_control(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                             const ControlStep& step, std::uint64_t* fetched) override;
  Status execute_locked(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                        const ControlStep& acquire_step, const ControlStep& release_step,
                        LockedResult& result) override;
  Status ask_for_regions(Pending& pending, const HandlerPlace& place, std::uint64_t first,
                         std::span<std::byte> page) override;
  Status ask_for_description(Pending& pending, const HandlerPlace& place, std::span<std::byte> description) override;
  bool publish(std::uint64_t id, const MessageHandler::Region& region) override;
  void withdraw(std::uint64_t id) override;

  // For waiting application threads (Progress). Returns whether anything completed or arrived.
  bool poll();
  // For threads that wait in the MPI runtime, called repeatedly from its progress engine: polls while the progress
  // thread leaves arrivals to them (adaptive_polling.hpp), else costs two loads and a store.
  bool poll_from_runtime();
  void listen(WakeEvent& wake_event);
  void stop_listening(WakeEvent& wake_event);

 private:
  using Clock = std::chrono::steady_clock;
  // Between two passes over the connections, while there are too many.
  static constexpr std::chrono::milliseconds kRoomAgain{20};

  Fabric(InfoHandle info, const Settings& settings, Progress& progress, Statistics& statistics)
      : info_(std::move(info)),
        asked_timeout_(settings.peer_timeout),
        peer_timeout_(asked_timeout_),
        asked_connections_(settings.connections),
        limits_(queue_limits(is_adapter(*info_))),
        progress_(progress),
        statistics_(statistics) {}
  // How the provider takes the operands of 64-bit atomics. In libfabric before 2.2, verbs uses the address of an
  // operand as its value (issue 10911), so the value must be given as the address.
  enum class NicForm : std::uint8_t { kNone, kByAddress, kByValue };

  std::chrono::seconds peer_timeout() const { return peer_timeout_.load(std::memory_order_relaxed); }
  Status set_up(const Settings& settings, Resolve resolve);
  bool claims_nic_atomics() const;
  std::string try_nic_atomics();
  Status nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand, const std::uint64_t* compare,
                    std::uint64_t* fetched);
  Status add_receives(std::size_t count);
  void follow_connections();
  Status post_receive(Receive& buffer);
  void receive_again(Receive& buffer);
  // A local buffer as the provider takes it.
  struct Local {
    void* at = nullptr;
    void* descriptor = nullptr;
  };
  int outgoing(Operation& operation, const void* from, std::size_t bytes, FabricHandle<fid_mr>& registered,
               Local& local);
  int incoming(Operation& operation, void* into, std::size_t bytes, FabricHandle<fid_mr>& registered, Local& local);
  FabricHandle<fid_mr> register_large(const void* base, std::size_t bytes, std::uint64_t access);
  template <class IssuePart>
  Status issue_parts(const void* local, std::size_t bytes, std::uint64_t access, IssuePart&& issue_part);
  void recycle(Operation& operation);
  template <class Issue>
  Status issue(Pending& pending, Peer peer, const char* what, Issue&& call);
  // A request without its list, its place and its operation.
  struct Request {
    RequestHeader header{};                           // `controls` is the number of steps
    std::array<ControlStep, kMostControls> steps{};
    std::span<std::byte> fetched;
    LockedResult* locked_result = nullptr;  // instead of `fetched`, for a list between two steps
  };
  Status send_request(Pending& pending, const HandlerPlace& place, const Request& request,
                      std::unique_ptr<OperationList> list);
  bool drain();
  bool take_completions();
  void finish_answers();
  void wake_listeners();
  void complete(const fi_cq_msg_entry& entry);
  void complete_with_error();
  void finish(Operation& operation);
  void receive(Receive& buffer, std::size_t bytes);
  void take_reply(std::span<const std::byte> message);
  void send_replies();
  std::unique_ptr<Reply> take_reply_buffer();
  ssize_t send(Reply& reply);
  ssize_t send_probe(Reply& probe);
  ssize_t send(fid_ep* endpoint, const iovec* parts, std::size_t count, LocalMemory::Slot*& slot, Context& context);
  void check_peers();
  void check_peer(PeerState& peer_state, Clock::time_point now);
  // Connection eviction (fabric_eviction.cpp).
  bool too_many_connections() const {
    return (most_connections_ > 0 && connections_->count() > most_connections_) || connections_->shortage();
  }
  void make_room();
  void receive_disconnect(std::span<const std::byte> message);
  void disconnect_idle();
  void check_for_dead_paths();
  static bool quiet(PeerState& peer_state, Clock::time_point now, Clock::duration so_long);
  Error out_of_reach(const std::string& why) const;
  std::string why_not_taken(Peer peer, const char* what) const;
  void fail_peer(PeerState& peer_state, const std::string& why);
  void drop_replies(Peer peer, const std::string& why);
  bool back_off_for(AdaptivePolling& polling);
  bool idle() const;
  std::chrono::milliseconds sleep_limit();
  void end_long_sleep();
  void run_progress_thread();

  InfoHandle info_;
  const std::chrono::seconds asked_timeout_;        // FARSIDE_PEER_TIMEOUT; 0: no limit
  std::atomic<std::chrono::seconds> peer_timeout_;  // that, or limit_silence()
  const std::size_t asked_connections_;             // FARSIDE_CONNECTIONS; 0: no limit
  QueueLimits limits_;
  Progress& progress_;
  Statistics& statistics_;
  // libfabric objects, in the order of opening.
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  std::unique_ptr<Connections> connections_;
  int queue_fd_ = -1;
  NicForm nic_form_ = NicForm::kNone;
  bool orders_messages_behind_writes_ = false;

  // Guards the members from local_memory_ to handler_, and the endpoint while operations are issued. Held for
  // microseconds (some milliseconds when a peer is abandoned), and never while waiting or calling out of transport/.
  std::mutex mutex_;
  LocalMemory local_memory_;
  OperationPool operations_;
  PeerStates peer_states_;
  std::size_t node_processes_ = 0;                  // that share what the node has for connections
  std::size_t most_connections_ = 0;                // 0: no limit
  std::vector<Peer> disconnecting_;     // peers that have sent DISCONNECT
  Clock::time_point make_room_again_{};
  std::uint64_t activations_then_ = 0;  // of peers, when the progress thread last checked them
  bool sleeps_long_ = false;            // the progress thread sleeps, or is about to, since nothing is under way
  std::vector<std::unique_ptr<Receive>> receives_;
  std::deque<std::unique_ptr<Reply>> unsent_;       // refused with EAGAIN, or behind a refused one
  std::uint32_t answers_under_way_ = 0;             // answers and probes that the provider has
  std::vector<std::unique_ptr<Reply>> spare_;
  MessageHandler handler_;

  WakeEvent own_wake_event_;                        // of threads that wait to issue
  std::atomic<std::uint32_t> polls_{0};             // by application threads; while it moves, the thread backs off
  std::atomic<std::uint32_t> runtime_polls_{0};     // calls of poll_from_runtime, approximately: it only has to move
  std::atomic<bool> runtime_serves_{false};         // the progress thread leaves arrivals to poll_from_runtime
  WakeEvent back_off_event_;                        // of the progress thread in its back-off
  Listening listening_;                             // size of listeners_, read without its mutex
  std::mutex listeners_mutex_;
  std::vector<WakeEvent*> listeners_;  // of application threads that sleep
  std::atomic<bool> stop_{false};
  UniqueFd wake_fd_;                   // wakes the progress thread
  std::thread thread_;
};

}  // namespace farside
