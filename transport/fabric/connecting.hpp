// SPDX-License-Identifier: BSD-3-Clause
// What it takes to connect: the libfabric objects of connections, the resources for them, and this process's requests.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sys/types.h>
#include <thread>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/connection_table.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

// Hello: the data that both sides send when they connect (the private data of fi_cm(3)). They come from the network.

struct Hello {
  static constexpr std::uint32_t kMagic = 0x46415253;  // FARS
  static constexpr std::uint32_t kVersion = 4;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t from = 0;     // identity of the sender
  std::uint64_t secret = 0;   // of the listener; 0 in its answer
  std::uint64_t number = 0;   // of the connection: random, chosen by the side that connects
  std::uint64_t attempt = 0;  // the sender's attempts to connect to any peer so far, this request included
  RingAddress ring;
};

// What is sent. The ring is left out where there is none: rdma_cm carries at most 56 bytes (rdma_connect(3)).
inline std::span<const std::byte> bytes_of(const Hello& hello) {
  return std::as_bytes(std::span(&hello, 1)).first(hello.ring.key != 0 ? sizeof hello : offsetof(Hello, ring));
}

// Reads what a peer has sent; none if it did not come from a farside of this version.
inline std::optional<Hello> read_hello(std::span<const std::byte> data) {
  Hello hello;
  if (data.size() < offsetof(Hello, ring)) return {};
  std::memcpy(&hello, data.data(), std::min(data.size(), sizeof hello));
  if (hello.magic != Hello::kMagic || hello.version != Hello::kVersion) return {};
  return hello;
}

// A process's share of the node's resources for connections. Over TCP each connection takes an open file of the node
// (/proc/sys/fs/file-max), over an adapter a queue pair.

// Returns the share of one of `processes`. A quarter stays for the MPI runtime and other programs.
constexpr std::uint64_t share_of_node(std::uint64_t all, std::size_t processes) {
  return (all - all / 4) / std::max<std::uint64_t>(processes, 1);
}

// Returns how many connections a process may have over an adapter with so many queue pairs, at least 1; 0: any number,
// since 0 queue pairs say that their number is not known (fi_domain(3), ep_cnt).
constexpr std::size_t connections_of_adapter(std::size_t queue_pairs, std::size_t processes) {
  return queue_pairs == 0 ? 0 : std::max<std::size_t>(share_of_node(queue_pairs, processes), 1);
}

// The descriptors that this process may have (RLIMIT_NOFILE, and its share of the node's open files), of which each
// connection over TCP takes one. Connections leave a reserve to the application. The soft limit is raised, as far as
// the hard limit permits, only when connections need it: descriptors above 1023 do not fit into the fd_set of
// select(2).

// Returns how many connections fit below a limit of descriptors, `open` of which are in use by others.
constexpr std::size_t connections_within(std::uint64_t limit, std::size_t open) {
  constexpr std::uint64_t kReserve = 256;
  const std::uint64_t others = open + (limit / 4 < kReserve ? limit / 4 : kReserve);
  return others < limit ? static_cast<std::size_t>(limit - others) : 0;
}

// Returns how many connections fit into this process's share of the node's open files.
constexpr std::size_t connections_of_node(std::uint64_t files, std::size_t processes, std::size_t open) {
  const std::uint64_t share = share_of_node(files, processes);
  return open < share ? static_cast<std::size_t>(share - open) : 0;
}

class DescriptorLimit {
 public:
  // Reads the limits, and counts the descriptors that are open now.
  DescriptorLimit();
  // Returns how many connections fit when the soft limit is raised to the hard limit, and so many processes, with this
  // one, share the open files of the node.
  std::size_t most_connections(std::size_t processes) const {
    return std::min(connections_within(hard_, open_), connections_of_node(of_node_, processes, open_));
  }
  // Raises the soft limit if so many connections need it.
  void allow(std::size_t connections) {
    if (connections > allowed_) [[unlikely]]
      raise(connections);
  }
  // Raises the soft limit, at least to twice its value. Returns false if it cannot be raised any more.
  bool raise(std::size_t connections);

 private:
  std::size_t open_ = 0;
  std::uint64_t hard_ = 0;
  std::uint64_t of_node_ = 0;  // open files that the node may have
  std::size_t allowed_ = 0;    // connections that fit below the soft limit
};

// ConnectionRoom: the resources for connections (descriptors over TCP, else queue pairs of the adapter), and the
// classes of connection errors: shortage of a resource, transient, lasting.
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: a comparison per connection. Memory: nothing per peer.

// Returns whether a connection error is transient: a cable was cut, the peer is too busy to accept, an address is not
// resolved yet, or a resource is short. Such an attempt is repeated until the peer is abandoned.
bool is_transient_connect_error(int error);

class ConnectionRoom {
 public:
  explicit ConnectionRoom(const FabricDomain& domain) : domain_(domain) {}

  // Returns how many connections the process may have if this number of processes of its node, this one included, share
  // the resource. (All connections of a process use one completion queue.) 0: any number, because the provider does not
  // say how many queue pairs there are.
  std::size_t most_connections(std::size_t processes) const;
  // What that number depends on, in words.
  const char* what_limits() const;
  // Makes room for so many connections, as far as that is possible.
  void allow(std::size_t connections) {
    if (!domain_.by_adapter()) descriptors_.allow(connections);
  }
  // Notes an error of a request for one connection more than `connections`. If the process has no descriptor left, its
  // soft limit may have been lowered, or other parts of the program use many descriptors.
  void note_error(int error, std::size_t connections);
  // Notes a shortage if the process has no descriptor left to duplicate this one.
  void look_for_shortage(int descriptor, std::size_t connections);
  // Returns whether the process, or its node, had no descriptor or no memory for a connection since the last
  // clear_shortage().
  bool shortage() const { return shortage_; }
  void clear_shortage() { shortage_ = false; }

 private:
  const FabricDomain& domain_;
  DescriptorLimit descriptors_;
  bool shortage_ = false;
};

// ConnectionEndpoints: the libfabric objects of connections: the queue of connection events, the queue of receives that
// all endpoints share, the listener, and the endpoints (fi_endpoint(3), fi_cm(3), fi_eq(3)).
//
// Thread safety: any thread may call open_accepting() and open_towards(); they read only what open() has made. The
// other members are called under Fabric's mutex. Errors: kNoRoute when it is opened, else negative libfabric codes.
// Cost: over TCP 40 us per endpoint, without waiting; connecting.hpp says what an adapter may take. Memory:
// nothing per peer.
class ConnectionEndpoints {
 public:
  // For tests: called before an endpoint is opened, in place of a resolution of the address. A negative libfabric code
  // is the result.
  using Resolve = std::function<int(const SocketAddress&)>;
  // `domain` must outlive this object.
  ConnectionEndpoints(const FabricDomain& domain, Resolve resolve) : domain_(domain), resolve_(std::move(resolve)) {}

  // Begins to listen. `receives`: how many the shared queue shall hold; 0: libfabric's default. Errors: kNoRoute.
  Status open(std::size_t receives);
  // The address of the listener.
  const SocketAddress& address() const { return address_; }
  fid_eq* events() const { return events_.get(); }
  int events_fd() const { return events_fd_; }
  fid_ep* receiver() const { return receives_.get(); }
  // How many receives it holds: what was asked for, or libfabric's default if an adapter has no room for that.
  std::size_t most_receives() const { return most_receives_; }

  // Open an endpoint: for a peer's request (`info` came with it), or for a request of this process to the address.
  // `ring`: by which messages are sent on it (message_ring.hpp), or null. Return 0 or a negative libfabric code.
  ssize_t open_accepting(fi_info* info, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  ssize_t open_towards(const SocketAddress& address, MessageRing* ring, FabricHandle<fid_ep>& out) const;
  // Refuses a peer's request.
  void reject(const fi_info& info) const { fi_reject(listener_.get(), info.handle, nullptr, 0); }
  void stop_listening() { listener_.reset(); }

 private:
  const FabricDomain& domain_;
  const Resolve resolve_;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;
  std::size_t most_receives_ = 0;
  FabricHandle<fid_pep> listener_;
  SocketAddress address_;
};

// The two ends of a connection over TCP or an adapter; none if it has no such addresses.
std::optional<TcpEnds> ends_of(fid_ep* endpoint);

// Shuts the connection down. When this returns, the provider touches no buffer of an operation on it any more; all of
// them complete with errors. `queue`: their completion queue; null over an adapter.
void shut_down(fid_ep* endpoint, fid_cq* queue);

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
  std::vector<Request> in_flight_;   // whose endpoints are being opened, without those that were cancelled
  std::deque<Opened> opened_;
  std::size_t idle_ = 0;  // threads that wait for requests
  std::uint64_t numbers_ = 0;
  bool stop_ = false;
  std::atomic<bool> ready_{false};  // whether opened_ has something, so that take() seldom needs the mutex
  std::vector<std::thread> threads_;
};

// ConnectionRequests: the requests of this process to connect. At most kMostInitiated requests are in flight. Requests
// to further peers wait in a queue, so that a thousand first operations do not flood the peers' listeners. An attempt
// that failed with a transient error is repeated after a back-off, until Fabric abandons the peer.
//
// Opening an endpoint may wait until the peer's address is resolved. Separate threads then open it
// (EndpointOpener), and take_opened() requests the connection when the endpoint is open. No request is in flight
// before that, so a connection request of the peer simply replaces it. fi_connect does not wait: over TCP it calls
// connect(2) on a socket that does not block.
//
// Not thread-safe: Fabric's mutex guards it. Errors: kept in KnownPeer (last_error, failed). Cost: over TCP 40 us per
// attempt, over an adapter two switches between threads. Memory: 8 bytes per peer that waits.
class ConnectionRequests {
 public:
  using Clock = Connection::Clock;
  // Requests that may be in flight at once, their endpoints being opened included.
  static constexpr std::size_t kMostInitiated = 32;

  // All must outlive this object. `openers`: the most threads that open endpoints; 0: the caller opens them. `opened`:
  // called by these threads when take_opened() has something to do.
  ConnectionRequests(ConnectionTable& table, ConnectionRoom& room, const ConnectionEndpoints& endpoints,
                     const FabricAddress& own, MessageRings& rings, std::size_t openers, std::function<void()> opened);

  // Requests a connection to the peer, as soon as there is a place and the peer's back-off has ended. Precondition: it
  // has no connection.
  void ask(Peer peer);
  // Connects to the peers that wait, as far as there are places. An error stays in KnownPeer, for the next operation.
  void connect_waiting();
  // Takes the endpoints that threads have opened. Returns whether there were any.
  bool take_opened();
  // Withdraws the request whose endpoint is being opened. Returns whether there was one.
  bool cancel_opening(Peer peer);
  // Removes the request to an abandoned peer.
  void stop(Peer peer);
  // Ends the threads.
  void end() { opener_.reset(); }

  // Returns whether the peer waits for a place, or behind other peers for a thread that opens endpoints.
  bool waits_for_place(Peer peer) const {
    const KnownPeer& known = table_.of(peer);
    return known.waits || (known.opening && !opener_->begun(peer));
  }
  bool any_waiting() const { return !waiting_.empty(); }
  // How many peers' endpoints are being opened.
  std::size_t opening() const { return opening_; }
  // The requests of this process to any peer so far.
  std::uint64_t attempts() const { return attempts_; }

 private:
  ssize_t connect(Peer peer);
  ssize_t request(Peer peer, FabricHandle<fid_ep> endpoint, std::unique_ptr<MessageRing> ring);
  void not_connected(KnownPeer& known, ssize_t code);

  ConnectionTable& table_;
  ConnectionRoom& room_;
  const ConnectionEndpoints& endpoints_;
  const FabricAddress& own_;
  MessageRings& rings_;
  std::uint64_t attempts_ = 0;
  std::deque<Peer> waiting_;                // for a place; entries without KnownPeer::waits are void
  std::size_t opening_ = 0;                 // peers with KnownPeer::opening
  std::unique_ptr<EndpointOpener> opener_;  // null: endpoints are opened here
};

}  // namespace farside
