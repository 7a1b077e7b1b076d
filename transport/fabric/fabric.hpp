// SPDX-License-Identifier: BSD-3-Clause
// This process's libfabric endpoint (FI_EP_RDM): RDMA writes and reads, remote atomics, requests to agents, and
// what keeps them moving. Opened by the first window that has a peer which only the fabric reaches.
//
// Operations are issued here and complete later: each adds itself to a Pending, and whoever polls the completion
// queue takes it off. An operation is complete when it has taken effect at the target (FI_DELIVERY_COMPLETE), and
// its local buffers must stay until then.
//
// A peer that stays out of reach (it cannot be connected to, or takes nothing any more) is given up after a while: what is
// under way towards it fails. One that is merely slow to answer is waited for.
//
// Progress: the progress thread sleeps on the completion queue's file descriptor and executes what arrives, so that
// a target that computes never delays an origin. While an application thread polls, the progress thread stays out
// of its way; while application threads sleep, it wakes them.
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

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/unique_fd.hpp"
#include "transport/base/doorbell.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/address.hpp"
#include "transport/agent/agent.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/pending.hpp"

namespace farside {

class Fabric {
 public:
  // Opens the provider asked for, or chooses one, and starts the progress thread.
  static Result<std::unique_ptr<Fabric>> open(const Settings& settings, Progress& progress, Statistics& statistics);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  const FabricAddress& address() const { return address_; }
  const char* provider() const { return info_->fabric_attr->prov_name; }
  // Makes a peer known; the address vector gives the same address the same peer.
  Result<Peer> insert(const FabricAddress& address);

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
  // Whether the provider combines `op` on `type` by itself; at most how many elements in one call (0: not at all).
  enum class AtomicCall : std::uint8_t { kPlain, kFetch, kCompare };
  std::size_t atomic_limit(AtomicCall call, ReduceOp op, BasicType type) const;
  // Whether atomics towards one peer take effect there in the order in which they were issued, among themselves: a
  // call of atomic or compare_and_swap has been accepted by the provider when it returns, so none can overtake it.
  bool orders_atomics() const { return orders_atomics_; }
  // `fetched` null: no result. Splits what is longer than one call.
  Status atomic(Pending& pending, const Place& place, ReduceOp op, BasicType type, const void* origin, void* fetched,
                std::size_t count);
  Status compare_and_swap(Pending& pending, const Place& place, BasicType type, const void* origin,
                          const void* compare, void* fetched);
  // One message to the agent of a peer. Its operations' own buffers receive what they fetch.
  Status carry_out(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list);
  // The same with an addition to a control word when they are done; the word is fetched. `list` null: only that.
  Status carry_out_and_add(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list, const ControlAdd& add,
                           std::uint64_t* fetched);
  // A page of the peer's table of attached regions (AttachedRegions::Page).
  Status ask_for_regions(Pending& pending, const AgentPlace& place, std::uint64_t first, std::span<std::byte> page);

  // The agent's regions (agent.hpp).
  std::uint64_t publish(Agent::Region region);
  void admit(std::uint64_t region, std::vector<Peer> peers, bool always_locked);
  void withdraw(std::uint64_t region);

  // For waiting application threads (Progress).
  void poll();
  void listen(Doorbell& bell);
  void stop_listening(Doorbell& bell);

 private:
  using Clock = std::chrono::steady_clock;
  // How it goes with a peer.
  struct Contact {
    std::uint32_t under_way = 0;      // operations issued, or being issued
    std::uint32_t completed = 0;      // ever
    std::uint32_t completed_then = 0; // at quiet_since
    std::uint32_t given_up = 0;       // how often
    Clock::time_point quiet_since{};  // nothing has completed, and no probe was taken
  };

  Fabric(InfoHandle info, std::chrono::seconds peer_timeout, Progress& progress, Statistics& statistics)
      : info_(std::move(info)), peer_timeout_(peer_timeout), progress_(progress), statistics_(statistics) {}
  Status set_up();
  void query_atomics();
  Status post_receive(Receive& buffer);
  void receive_again(Receive& buffer);
  template <class Issue>
  Status issue(Pending& pending, Peer peer, const char* what, Issue&& call);
  Status send_request(Pending& pending, const AgentPlace& place, const RequestHeader& header, std::unique_ptr<OperationList> list,
                      const ControlAdd& add, std::span<std::byte> fetched);
  bool drain();
  void ring_listeners();
  void complete(const fi_cq_msg_entry& entry);
  void complete_with_error();
  void finish(Operation& operation);
  void receive(Receive& buffer, std::size_t bytes);
  void take_reply(std::span<const std::byte> message);
  void send_replies();
  std::unique_ptr<Reply> take_reply_buffer();
  ssize_t send(Reply& reply);
  void look_after_peers();
  void give_up(Peer peer, const std::string& why);
  void run_progress_thread();

  InfoHandle info_;
  std::chrono::seconds peer_timeout_;               // 0: none
  Progress& progress_;
  Statistics& statistics_;
  // libfabric objects, in the order in which they are opened.
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_av> address_vector_;
  FabricHandle<fid_cq> queue_;
  FabricHandle<fid_ep> endpoint_;
  FabricAddress address_;
  int queue_fd_ = -1;
  bool orders_atomics_ = false;
  std::array<std::array<std::array<std::size_t, kBasicTypes>, kReduceOps>, 3> atomic_limits_{};

  // Guards everything below, and the endpoint while operations are issued. Held for microseconds, never while
  // waiting or calling out of transport/.
  std::mutex mutex_;
  OperationPool operations_;
  std::vector<Contact> contacts_;                   // by peer: addresses are indices (FI_AV_TABLE)
  std::vector<std::unique_ptr<Receive>> receives_;
  std::deque<std::unique_ptr<Reply>> unsent_;       // refused with EAGAIN, or behind one that was
  std::vector<std::unique_ptr<Reply>> spare_;
  Agent agent_;

  Doorbell own_bell_;                               // of threads that wait to issue
  std::atomic<std::uint32_t> polls_{0};             // by application threads: while it moves, the thread stays away
  Doorbell away_;                                   // of the progress thread while it stays away
  std::atomic<std::uint32_t> listening_{0};         // size of listeners_, read without its mutex
  std::mutex listeners_mutex_;
  std::vector<Doorbell*> listeners_;                // of application threads that sleep
  std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;
  std::thread thread_;
};

}  // namespace farside
