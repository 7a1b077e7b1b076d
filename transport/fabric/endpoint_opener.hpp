// SPDX-License-Identifier: BSD-3-Clause
// EndpointOpener: threads that open endpoints for connection requests, since fi_endpoint may block for seconds. In the
// verbs provider of libfabric before 1.21, fi_endpoint waits until the peer's address is resolved
// (rdma_resolve_addr(3)), for up to 2 s. In all versions it asks the daemon ibacm, where there is one
// (rdma_getaddrinfo(3)).
//
// The threads do not call fi_connect. That call only starts a resolution (before 1.21 of the route, later of the
// address) and does not wait for it, because the event queue takes over the events of an endpoint that is bound to it
// (rdma_migrate_id(3)). So no event of an endpoint can arrive, and no request is sent, before the owner has taken the
// endpoint.
//
// A thread is added when all others are busy, up to a limit. So an address that is not resolved delays no other
// endpoint. If there are as many such addresses as threads, the endpoints behind them in the queue are delayed; begun()
// returns false for these.
//
// Over TCP the calls do not block, and take 40 us. With a thread, the first put to a peer takes 27 us more at best and
// 80 us more in the median (300 instead of 220 us). Connections therefore opens these endpoints itself.
//
// Thread safety: Connections calls all members under Fabric's mutex; none of them waits for an endpoint to be opened,
// but the destructor. Cost: two switches between threads per endpoint. Memory: about 50 bytes per request, and a stack
// per thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/handles.hpp"

namespace farside {

class EndpointOpener {
 public:
  static constexpr std::size_t kMostThreads = 8;  // of a process's endpoint
  // Opens an endpoint for a connection to this address. Returns 0 or a negative libfabric code. The threads call it, at
  // once.
  using Open = std::function<ssize_t(const SocketAddress&, FabricHandle<fid_ep>&)>;
  // `opened` is called by a thread when take() has something to return.
  EndpointOpener(std::size_t most_threads, Open open, std::function<void()> opened)
      : most_threads_(most_threads), open_(std::move(open)), notify_(std::move(opened)) {}
  EndpointOpener(const EndpointOpener&) = delete;
  EndpointOpener& operator=(const EndpointOpener&) = delete;
  // Waits for the endpoints that are being opened, and closes all that were not taken.
  ~EndpointOpener();

  // Requests an endpoint for a connection to the peer. Precondition: no request for the peer is in this object. Errors:
  // kOther if no thread can be started.
  Status request(Peer peer, const SocketAddress& address);
  // Withdraws the request for the peer. An endpoint that was opened for it, or is being opened, is closed.
  void cancel(Peer peer);
  // Returns whether a thread has begun to open the endpoint. Precondition: it was requested.
  bool begun(Peer peer) const;

  struct Opened {
    Peer peer = 0;
    ssize_t code = 0;               // as Open returned it
    FabricHandle<fid_ep> endpoint;  // if it is 0
  };
  // Returns what was opened next.
  std::optional<Opened> take();

 private:
  struct Request {
    Peer peer;
    SocketAddress address;
    std::uint64_t number;  // of the request: the peer may be requested again meanwhile
  };
  void run();

  const std::size_t most_threads_;
  const Open open_;
  const std::function<void()> notify_;
  mutable std::mutex mutex_;         // guards the members that follow, but ready_ and threads_
  std::condition_variable changed_;  // requests_ or stop_
  std::deque<Request> requests_;     // that no thread has begun
  std::vector<Request> under_way_;   // whose endpoints are being opened, without those that were cancelled
  std::deque<Opened> opened_;
  std::size_t idle_ = 0;  // threads that wait for requests
  std::uint64_t numbers_ = 0;
  bool stop_ = false;
  std::atomic<bool> ready_{false};  // whether opened_ has something, so that take() seldom needs the mutex
  std::vector<std::thread> threads_;
};

}  // namespace farside
