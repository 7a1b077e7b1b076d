// SPDX-License-Identifier: BSD-3-Clause
// This process on the fabric: RDMA writes and reads, remote atomics, requests to handlers, and what keeps them moving.
// Opened by the first window that has a peer which only the fabric reaches. How peers are connected to:
// connections.hpp.
//
// Operations are issued here and complete later: each adds itself to a Pending, and whoever polls the completion
// queue takes it off. An operation is complete when it has taken effect at the target (FI_DELIVERY_COMPLETE), and
// its local buffers must stay until then. Operands of at most kCopiedAtCall bytes need not stay: they have been copied
// when the call returns.
//
// A peer that stays out of reach (it cannot be connected to, takes nothing any more, or its machine or adapter
// acknowledges nothing) is given up after a while: what is under way towards it fails. One that is merely slow to
// answer is waited for.
//
// Progress: unless FARSIDE_PROGRESS=none, the progress thread sleeps on the completion queue's file descriptor and
// executes what arrives, so that a target that computes never delays an origin. While an application thread polls, the
// progress thread stays out of its way; while application threads sleep, it wakes them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
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
#include "transport/fabric/handles.hpp"
#include "transport/fabric/listening.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class Fabric {
 public:
  // Opens the provider that was found (provider.hpp), and starts the progress thread. Errors: kBadSetting where there
  // is to be none, and the provider leaves work to one.
  static Result<std::unique_ptr<Fabric>> open(InfoHandle info, const Settings& settings, Progress& progress,
                                              Statistics& statistics);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  const FabricAddress& address() const { return connections_->address(); }
  const char* provider() const { return info_->fabric_attr->prov_name; }
  const char* device() const { return info_->domain_attr->name; }
  // Makes a peer known; the same address is the same peer.
  Peer insert(const FabricAddress& address);

  // Connects to peers at once, instead of when something is first issued to them: all of them, who do the same.
  Status connect(std::span<const Peer> peers);
  // Whether somebody here carries out what peers ask for, and accepts their connections, at any time: the progress
  // thread.
  bool serves() const { return serves_; }

  // Memory of this process that peers may access with the returned key until the Registration ends.
  struct Registration {
    FabricHandle<fid_mr> region;
    RemoteKey key;
  };
  Result<Registration> expose(void* base, std::size_t bytes);

  // A place in a peer's exposed memory.
  struct Place {
    Peer peer;
    RemoteKey key;
    std::uint64_t offset;  // bytes from the base that was exposed
  };

  // All of these return once the operation is issued; the Status is that of issuing.
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes);
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes);
  // Whether locks and sums of 64-bit integers are atomics of the target's adapter (domain nic, README.md), so that no
  // thread there has to wake; otherwise the target's handler carries them out. Such atomics are atomic among themselves
  // only; they and all that is issued after other operations on the same peer take effect behind them.
  bool nic_atomics() const { return nic_form_ != NicForm::kNone; }
  // One step on a control word of 64 bits by the adapter (precondition: nic_atomics()); operands and `fetched` stay in
  // use until `pending` is done.
  Status control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched);
  // Whether a request to a handler is executed behind the writes to its process that were issued before.
  bool orders_messages_behind_writes() const { return orders_messages_behind_writes_; }
  // One message to the handler of a peer. Its operations' own buffers receive what they fetch.
  Status execute(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list);
  // The same with a step on a control word when they are done; what it held is fetched. `list` null: only that.
  Status execute_and_control(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                             const ControlStep& step, std::uint64_t* fetched);
  // The same between two steps: the release step as above; before the operations the acquire step, which may stop them
  // (message.hpp). `result` stays in use until `pending` is done.
  Status execute_locked(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                        const ControlStep& acquire_step, const ControlStep& release_step, LockedResult& result);
  // A page of the peer's table of attached regions (AttachedRegions::Page).
  Status ask_for_regions(Pending& pending, const HandlerPlace& place, std::uint64_t first, std::span<std::byte> page);

  // The handler's regions (message_handler.hpp).
  std::uint64_t publish(MessageHandler::Region region);
  void admit(std::uint64_t region, std::vector<Peer> peers, bool always_locked);
  void withdraw(std::uint64_t region);

  // For waiting application threads (Progress). Whether anything completed or came.
  bool poll();
  // For those that wait in the MPI runtime, called from its progress engine again and again: polls while the progress
  // thread leaves what arrives to them (adaptive_polling.hpp), else it costs two loads and a store.
  bool poll_from_runtime();
  void listen(WakeEvent& wake_event);
  void stop_listening(WakeEvent& wake_event);

 private:
  using Clock = std::chrono::steady_clock;
  // How it goes with a peer.
  struct PeerState {
    std::uint32_t under_way = 0;      // operations issued, or being issued
    std::uint32_t issued = 0;         // of those, the provider has taken
    std::uint32_t completed = 0;      // ever
    std::uint32_t completed_then = 0; // at quiet_since
    std::uint32_t failures = 0;       // how often
    Clock::duration patience{};  // for how long it must not be used, to be disconnected from; zero: the shortest time
    Clock::time_point last_issued{};  // where connections are limited in number
    Clock::time_point quiet_since{};  // nothing has completed, and no probe was taken (by an adapter: acknowledged)
    bool probed = false;              // an adapter has a probe
    Clock::time_point
        unacknowledged_since{};  // nothing has completed, and TCP waits for an acknowledgement; zero: it does not
    FabricAddress address;
  };

  Fabric(InfoHandle info, const Settings& settings, Progress& progress, Statistics& statistics)
      : info_(std::move(info)), peer_timeout_(settings.peer_timeout), serves_(settings.progress_thread),
        most_connections_(serves_ ? settings.connections : 0), progress_(progress), statistics_(statistics) {}
  // How the provider takes the operands of 64-bit atomics: libfabric before 2.2 has verbs take an address for the value
  // (its issue 10911), so that the value must be given for the address.
  enum class NicForm : std::uint8_t { kNone, kByAddress, kByValue };

  Status set_up(const Settings& settings);
  bool claims_nic_atomics() const;
  std::string try_nic_atomics();
  Status nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand, const std::uint64_t* compare,
                    std::uint64_t* fetched);
  Status post_receive(Receive& buffer);
  void receive_again(Receive& buffer);
  // Where the provider finds a buffer.
  struct Local {
    void* at = nullptr;
    void* descriptor = nullptr;
  };
  int outgoing(Operation& operation, const void* from, std::size_t bytes, Local& local);
  int incoming(Operation& operation, void* into, std::size_t bytes, Local& local);
  void recycle(Operation& operation);
  template <class Issue>
  Status issue(Pending& pending, Peer peer, const char* what, Issue&& call);
  // What a request is but for its list, its place and its operation.
  struct Request {
    RequestHeader header{};                           // the number of steps in `controls`
    std::array<ControlStep, kMostControls> steps{};
    std::span<std::byte> fetched;
    LockedResult* locked_result = nullptr;  // instead
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
  // Connections are limited in number (fabric_eviction.cpp).
  void make_room();
  void receive_disconnect(std::span<const std::byte> message);
  void disconnect_idle();
  void check_connections();
  void check_everything();
  void check_for_dead_paths();
  bool quiet(PeerState& peer_state, Clock::time_point now, Clock::duration so_long);
  Error out_of_reach(const std::string& why) const;
  void fail_peer(Peer peer, const std::string& why);
  void drop_replies(Peer peer, const std::string& why);
  bool back_off_for(AdaptivePolling& polling);
  void run_progress_thread();

  InfoHandle info_;
  std::chrono::seconds peer_timeout_;               // 0: none
  const bool serves_;
  const std::size_t most_connections_;              // 0: no limit
  Progress& progress_;
  Statistics& statistics_;
  // libfabric objects, in the order in which they are opened.
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  std::unique_ptr<Connections> connections_;
  int queue_fd_ = -1;
  NicForm nic_form_ = NicForm::kNone;
  bool orders_messages_behind_writes_ = false;

  // Guards everything below, and the endpoint while operations are issued. Held for microseconds (some milliseconds
  // when a peer is given up), never while waiting or calling out of transport/.
  std::mutex mutex_;
  LocalMemory local_memory_;
  OperationPool operations_;
  std::vector<PeerState> peer_states_;  // by peer
  std::vector<Peer> disconnecting_;     // those that have asked for the end of the connection
  std::vector<std::unique_ptr<Receive>> receives_;
  std::deque<std::unique_ptr<Reply>> unsent_;       // refused with EAGAIN, or behind one that was
  std::uint32_t answers_under_way_ = 0;             // and probes: the provider has them
  std::vector<std::unique_ptr<Reply>> spare_;
  MessageHandler handler_;

  WakeEvent own_wake_event_;                        // of threads that wait to issue
  std::atomic<std::uint32_t> polls_{0};             // by application threads: while it moves, the thread stays away
  std::atomic<std::uint32_t> runtime_polls_{0};     // calls of poll_from_runtime; roughly, it only has to move
  std::atomic<bool> runtime_serves_{false};         // what arrives
  WakeEvent back_off_event_;                        // of the progress thread while it stays away
  Listening listening_;                             // size of listeners_, read without its mutex
  std::mutex listeners_mutex_;
  std::vector<WakeEvent*> listeners_;  // of application threads that sleep
  Clock::time_point check_again_{};    // where there is no thread
  std::uint32_t probes_ = 0;
  std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  std::thread thread_;
};

}  // namespace farside
