// SPDX-License-Identifier: BSD-3-Clause
// The simulated network: libfabric's tcp provider for connected endpoints (FI_EP_MSG), by the tables of functions that
// its objects carry. farside's fabric/ runs on it unchanged, with its connections, rings and completions.
//
// A connection is two streams of packets, each in order. A packet takes effect when the process that receives it polls
// its completion queue, as with TCP: until then it waits in the "socket", and the queue's descriptor is readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tests/simulation/host.hpp"

namespace simulation::network {

// A completion or event queue's descriptor.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  int fd() const { return fd_; }
  void set() { host::signal_descriptor(fd_); }
  void clear();

 private:
  int fd_;
};

struct Region {
  fid_mr fid{};
  struct Domain* domain = nullptr;
  char* base = nullptr;
  std::size_t bytes = 0;
};

struct Domain {
  fid_domain fid{};
  std::map<std::uint64_t, Region*> regions;  // by key
};

struct CompletionQueue {
  fid_cq fid{};
  Signal signal;
  std::deque<fi_cq_err_entry> completions;  // err 0: a normal one
  std::vector<std::uint64_t> arrivals;      // endpoints that have packets; a poll handles these
  bool polled = false;                      // a thread has polled it
  void add(void* context, std::uint64_t flags, std::size_t bytes, int error);
};

struct Event {
  std::uint32_t event = 0;
  fid_t fid = nullptr;
  fi_info* info = nullptr;
  std::vector<char> data{};
  int error = 0;
};

struct EventQueue {
  fid_eq fid{};
  Signal signal;
  std::deque<Event> events;
  void add(Event event);
};

struct Receive {
  void* buffer;
  std::size_t bytes;
  void* context;
};

struct Receives {
  fid_ep fid{};
  std::deque<Receive> posted;
  std::size_t most = 0;
};

struct Packet {
  enum class Kind { kMessage, kWrite, kRead, kAnswer, kEnd } kind;
  std::vector<char> data{};
  std::vector<fi_rma_iov> places{};  // of a write or a read
  std::uint64_t operation = 0;       // number of the operation that the answer completes; 0: no answer
};

// An operation that has been issued and is not complete.
struct Operation {
  Packet packet;
  std::vector<iovec> local;
  void* context = nullptr;
  std::uint64_t flags = 0;
  bool sent = false;
};

struct Connector {  // the handle of a connection request (fi_eq_cm_entry)
  struct fid fid {};
  std::uint64_t endpoint = 0;
};

struct Listener {
  fid_pep fid{};
  EventQueue* events = nullptr;
  std::uint16_t port = 0;
  int rank = 0;
};

struct Endpoint {
  fid_ep fid{};
  std::uint64_t id = 0;
  int rank = 0, peer_rank = -1;
  Domain* domain = nullptr;
  EventQueue* events = nullptr;
  CompletionQueue* queue = nullptr;
  Receives* receives = nullptr;
  std::uint64_t requester = 0;  // of the connection that it accepts
  std::uint64_t peer = 0;       // 0: not connected, or no longer
  bool asked = false;           // its request has reached the peer, which has not answered
  bool ended = false;
  Time connected = 0;                    // from when on the peer takes packets
  Time last_sent = 0, last_arrival = 0;  // of this side's packets
  std::deque<Packet> arrived;
  bool listed = false;                            // among the arrivals of the queue
  std::map<std::uint64_t, Operation> operations;  // by number
};

// The capabilities of the provider, by the seed: rings of messages by RDMA, or only messages.
enum class Offer { kRings, kMessages };

// While a host is silent, nothing leaves it or reaches it. Afterwards TCP sends all again; kNever: it is lost.
struct Silence {
  Time since = kNever, until = 0;
};

struct Network {
  std::uint64_t numbers = 0;  // of operations
  std::uint64_t connections = 0;
  std::map<int, Silence> silences;  // by node
  std::map<int, Time> refusals;     // by node: until when it refuses connections
  std::map<std::uint64_t, Endpoint*> endpoints;
  std::map<std::uint16_t, Listener*> listeners;  // by port
  // By the seed: the latency, and how often a queue is full, or a socket.
  Offer offer = Offer::kRings;
  Time latency = 0;
  std::uint64_t full = 0, full_sockets = 0;
  std::uint64_t packets = 0;  // sent so far
};
Network& network();

// When a packet of so many bytes, sent now, arrives at the other rank; kNever: not at all.
Time arrival(int from, int to, std::size_t bytes);
Endpoint* find_endpoint(std::uint64_t id);

// Sends the packet behind those that the endpoint has sent before.
void transmit(Endpoint& from, Packet packet);
// Issues an operation. Its data are read when it is sent, some time later, unless FI_INJECT is given.
ssize_t issue(Endpoint& endpoint, Operation operation);
// Handles the packets that have arrived for the endpoints of the queue.
void progress(CompletionQueue& queue);
bool anything_arrived(const CompletionQueue& queue);
// The connection is over: operations that are not complete fail.
void end(Endpoint& endpoint);
// Fails an operation that waits for its answer, though the peer executes it. Returns whether there is one.
bool fail_one(Endpoint& endpoint);

// Faults (faults.hpp). The kernel of a rank that has died ends its connections; one that breaks loses what is on it.
void die(int rank);
void break_connection(Endpoint& endpoint);

}  // namespace simulation::network
