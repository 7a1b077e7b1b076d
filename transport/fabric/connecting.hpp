// SPDX-License-Identifier: BSD-3-Clause
// What it takes to connect: the data that both sides send, the resources of connections, and their libfabric objects.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <sys/types.h>
#include <thread>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/provider.hpp"

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

// Returns the share that one of `processes` has of a resource of the node. A quarter stays for the MPI runtime and
// other programs.
constexpr std::uint64_t share_of_node(std::uint64_t all, std::size_t processes) {
  return (all - all / 4) / std::max<std::uint64_t>(processes, 1);
}

// Returns how many connections fit below a limit of descriptors, `open` of which are in use by others. The application
// keeps a reserve.
constexpr std::size_t connections_within(std::uint64_t limit, std::size_t open) {
  constexpr std::uint64_t kReserve = 256;
  const std::uint64_t others = open + (limit / 4 < kReserve ? limit / 4 : kReserve);
  return others < limit ? static_cast<std::size_t>(limit - others) : 0;
}

// Returns whether a connection error is transient: a cable was cut, the peer is too busy to accept, an address is not
// resolved yet, or a resource is short. Such an attempt is repeated until the peer is abandoned.
bool is_transient_connect_error(int error);

// ConnectionRoom: the resource of connections. Over an adapter each takes a queue pair of the node's, over TCP a
// descriptor of the process (RLIMIT_NOFILE). The soft limit of descriptors is raised only when connections need it:
// descriptors above 1023 do not fit into the fd_set of select(2).
//
// Not thread-safe: Fabric's mutex guards it. Errors: none. Cost: a comparison per connection.
class ConnectionRoom {
 public:
  // `queue_pairs`: those of the adapter (fi_domain(3), ep_cnt), 0 if their number is not known; none over TCP.
  explicit ConnectionRoom(std::optional<std::size_t> queue_pairs);

  // Returns how many connections this process may have, at least 1, if this number of processes of its node, this one
  // included, share the queue pairs; 0: any number.
  std::size_t most_connections(std::size_t processes) const;
  // What that number depends on, in words.
  const char* what_limits() const;
  // Makes room for so many connections, as far as that is possible.
  void allow(std::size_t connections) {
    if (connections > allowed_) [[unlikely]]
      raise_limit();
  }
  // Notes an error of a request. If the process has no descriptor left, its soft limit may have been lowered, or other
  // parts of the program use many descriptors.
  void note_error(int error);
  // Notes a shortage if the process has no descriptor left to duplicate this one.
  void look_for_shortage(int descriptor);
  // Whether the process, or its node, had no descriptor or no memory for a connection. The user resets it.
  bool shortage = false;

 private:
  bool raise_limit();

  const std::optional<std::size_t> queue_pairs_;
  std::size_t open_ = 0;  // descriptors at the start
  std::uint64_t hard_limit_ = 0;
  std::size_t allowed_ = SIZE_MAX;  // connections that fit below the soft limit
};

// ConnectionEndpoints: the libfabric objects of connections: the queue of connection events, the queue of receives that
// all endpoints share, the listener, and the endpoints (fi_endpoint(3), fi_cm(3), fi_eq(3)).
//
// Thread safety: any thread may call open_accepting() and open_towards(); they read only what open() has made. The
// other members are called under Fabric's mutex. Errors: kNoRoute when it is opened, else negative libfabric codes.
// Cost: over TCP 40 us per endpoint, without waiting; EndpointOpener says what an adapter may take.
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

// EndpointOpener: threads that open endpoints for connection requests, since fi_endpoint may block. In the verbs
// provider of libfabric before 1.21 it waits until the peer's address is resolved (rdma_resolve_addr(3)), for up to 2
// s; in all versions it asks the daemon ibacm, where there is one (rdma_getaddrinfo(3)). fi_connect only starts a
// resolution, and the threads do not call it: no event of an endpoint can arrive, and no request is sent, before the
// owner has taken the endpoint.
//
// Over TCP the calls do not block, and take 40 us. With a thread, the first put to a peer takes 80 us more in the
// median (300 instead of 220 us). Connections therefore opens these endpoints itself.
//
// Thread safety: Connections calls all members under Fabric's mutex; none of them waits for an endpoint to be opened,
// but the destructor. Cost: a thread per endpoint.
class EndpointOpener {
 public:
  static constexpr std::size_t kMostThreads = 8;  // of a process's endpoint
  // Opens an endpoint for a connection to this address. Returns 0 or a negative libfabric code.
  using Open = std::function<ssize_t(const SocketAddress&, FabricHandle<fid_ep>&)>;
  // `ended`: called by a thread that has opened an endpoint, or could not. It must not wait for this object.
  EndpointOpener(std::size_t most_threads, Open open, std::function<void()> ended)
      : most_threads_(most_threads), open_(std::move(open)), ended_(std::move(ended)) {}
  EndpointOpener(const EndpointOpener&) = delete;
  EndpointOpener& operator=(const EndpointOpener&) = delete;

  // Returns whether there are fewer threads than there may be.
  bool any_free() {
    drop_cancelled();
    return openings_.size() < most_threads_;
  }
  // Begins to open an endpoint for a connection to the peer. Precondition: any_free(), and not opens(peer). Errors:
  // kOther if no thread can be started.
  Status begin(Peer peer, const SocketAddress& address);
  bool opens(Peer peer) { return find(peer) != openings_.end(); }
  // How many endpoints are being opened, or can be taken.
  std::size_t count() const { return static_cast<std::size_t>(std::ranges::count_if(openings_, &Opening::wanted)); }
  // Closes the peer's endpoint when it is open. Returns whether there was one.
  bool cancel(Peer peer);

  struct Opened {
    Peer peer = 0;
    ssize_t code = 0;               // as Open returned it
    FabricHandle<fid_ep> endpoint;  // if it is 0
  };
  // Returns what was opened next.
  std::optional<Opened> take();

 private:
  struct Opening {
    Opened opened;
    bool wanted = true;
    std::atomic<bool> done{false};
    std::thread thread;
    ~Opening() {
      if (thread.joinable()) thread.join();
    }
  };
  void drop_cancelled();
  std::list<Opening>::iterator find(Peer peer) {
    return std::ranges::find_if(openings_, [peer](const Opening& o) { return o.wanted && o.opened.peer == peer; });
  }

  const std::size_t most_threads_;
  const Open open_;
  const std::function<void()> ended_;
  std::list<Opening> openings_;
};

}  // namespace farside
