// SPDX-License-Identifier: BSD-3-Clause
// Fabric: the endpoint of this process (endpoint.hpp) by libfabric: RDMA writes and reads, remote atomics, requests to
// message handlers, and their progress. The first window with a peer that only the fabric reaches opens it.
//
// Operations are issued here and complete later. Each is counted in a Pending until it has taken effect at the target:
// an RDMA operation until its completion (FI_DELIVERY_COMPLETE), a message until the handler's reply. Its local buffers
// must stay until then, except operands of at most kCopiedAtCall bytes, which are copied at the call.
//
// Thread safety: all members may be called from any thread. An operation on a connected peer takes the mutex of that
// peer only (peers.hpp), once for each attempt to issue and once when its completion comes, so that threads with
// different peers do not wait for each other. One mutex guards all other data: connections, messages that arrive, and
// the data of periodic work. A poll returns at once if another thread holds this mutex. Over verbs there is a third
// mutex, that of the slots for operands (operation.hpp), which is held for a few loads and stores, or for the
// registration of 64 slots.
//
// Errors: kPeer for operations (also if the peer is abandoned; kRange if a handler refuses a request), kNoMemory if
// memory cannot be registered, kNoRoute when the endpoint is opened. Cost: an operation over TCP takes its origin 5 to
// 10 us. Memory: with Connections 128 to 152 bytes per peer, and 240 more once an operation was issued to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/uio.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/fabric_progress.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

class Fabric final : public OpenEndpoint {
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

  const FabricAddress& address() const override { return progress_.address(); }
  const char* provider() const override { return progress_.domain().provider(); }
  const char* device() const override { return progress_.domain().device(); }
  Peer insert(const FabricAddress& address) override { return progress_.insert(address); }
  void share_node(std::size_t processes) override { progress_.share_node(processes); }
  Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) override {
    return progress_.domain().register_memory(base, bytes, wanted);
  }
  bool keys_are_chosen() const override { return progress_.domain().keys_are_chosen(); }
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) override {
    return transfer(pending, place, const_cast<void*>(local), bytes, true);
  }
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) override {
    return transfer(pending, place, local, bytes, false);
  }
  bool nic_atomics() const override { return by_value_.has_value(); }
  Status control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                 const std::uint64_t* compare, std::uint64_t* fetched) override;
  bool has_message_ring(Peer peer) override;
  Status request(Pending& pending, const HandlerPlace& place, const HandlerRequest& request,
                 std::unique_ptr<OperationList> list) override;
  bool acknowledges_notifications() const override { return progress_.domain().by_adapter(); }
  std::uint32_t interruptions() const override { return progress_.in_flight().interruptions(); }
  const PeerLosses& losses(Peer peer) override { return progress_.in_flight().losses(peer); }
  Reach reach(Peer peer) override { return progress_.reach(peer); }
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) override {
    return progress_.publish(id, space);
  }
  void withdraw(std::uint64_t id) override { progress_.withdraw(id); }

  FabricProgress& progress() override { return progress_; }

 private:
  Fabric(FabricDomain domain, const QueueLimits& limits, const Settings& settings, Progress& progress,
         Statistics& statistics)
      : waiting_(progress), statistics_(statistics), progress_(std::move(domain), limits, settings, statistics) {}

  std::string try_nic_atomics();
  Status nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand, const std::uint64_t* compare,
                    std::uint64_t* fetched);
  FabricHandle<fid_mr> register_large(const void* base, std::size_t bytes, std::uint64_t access);
  Status transfer(Pending& pending, const Place& place, void* local, std::size_t bytes, bool writes);
  int local_buffer(Operation& operation, void* local, std::size_t bytes, bool writes, FabricHandle<fid_mr>& registered,
                   iovec& buffer, void*& descriptor);
  template <class Issue>
  Status issue(Pending& pending, Peer peer, const char* what, Issue&& call);

  Progress& waiting_;  // of threads that wait to issue
  Statistics& statistics_;
  WakeEvent own_wake_event_;  // of these threads
  // Whether 64-bit atomics take the value of an operand as its address, as verbs does in libfabric before 2.2 (issue
  // 10911). None: the provider has no atomics that work.
  std::optional<bool> by_value_;
  FabricProgress progress_;
};

}  // namespace farside
