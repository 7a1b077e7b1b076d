// SPDX-License-Identifier: BSD-3-Clause
// Messages that arrive, and those that are sent besides this process's own operations; and the limits of an endpoint's
// queues.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <sys/types.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside {

// QueueLimits: limits of what an endpoint has in flight, so that its queues never overflow. An adapter's completion
// queue is unusable after an overflow, and libfabric has had no credits for it since 1.19 (fi_verbs(7)). A message for
// which the receiver has no buffer is refused (RNR) and repeated after a pause. Over TCP the provider's queues grow
// with the operations towards a peer that takes no data: about 1 KiB for each. The kernel's flow control holds messages
// back.
struct QueueLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t completions = 0;              // entries of the completion queue; 0: libfabric's default
  std::size_t answers = kNone;              // replies and probes that the provider has
  std::size_t requests_per_peer = kNone;    // messages to one peer that await a reply
  std::size_t operations_per_peer = kNone;  // of this process, in flight to one peer
  std::size_t first_receives = 32;          // buffers for messages of all peers
  std::size_t receives_per_peer = 0;        // as many more for each connection,
  std::size_t most_receives = 32;           // up to this number

  constexpr std::size_t receives(std::size_t connections) const {
    return std::min(first_receives + receives_per_peer * connections, most_receives);
  }
};

// A peer sends at most `requests_per_peer` requests and as many replies. `first_receives` are the buffers for probes
// and for DISCONNECT. With more than 252 connections there are fewer buffers, and the pause after a refused message is
// the flow control. The operations of this process are limited by LocalMemory.
constexpr QueueLimits queue_limits(bool adapter) {
  // Over TCP most messages go through rings, and others wait in the socket for a buffer. More buffers at the beginning
  // would delay the first window, since each touches a page of memory.
  if (!adapter) return {.operations_per_peer = 2048, .first_receives = 4, .receives_per_peer = 4};
  constexpr QueueLimits limits{
      .completions = 4096, .answers = 512, .requests_per_peer = 4, .receives_per_peer = 8, .most_receives = 2048};
  static_assert(LocalMemory::kMostOwn + LocalMemory::kMostLarge + limits.answers + limits.most_receives <=
                limits.completions);
  static_assert(2 * limits.requests_per_peer <= limits.receives_per_peer);
  return limits;
}

// Sends one message of several parts. `slot`: that of the context, into which the message is copied where local buffers
// must be registered. May be called again if the provider had no room. Returns 0 or a negative libfabric code.
ssize_t send_message(LocalMemory& memory, fid_ep* endpoint, std::span<const iovec> parts, LocalMemory::Slot*& slot,
                     Context& context);

// Receives: the buffers for messages that arrive, in the one queue of receives that all endpoints of a process share.
// Their number follows the connections (QueueLimits).
//
// Not thread-safe: Fabric's mutex guards it. Errors: kNoMemory if buffers cannot be registered, kNoRoute if the
// provider does not take the first ones. Cost: fi_recv for each buffer. Memory: a message (about 8.3 KiB) per buffer;
// over an adapter 32 buffers and 8 per connected peer, up to 2,048 in all, else 4 and 4 per connected peer, up to 32.
class Receives {
 public:
  Receives(const QueueLimits& limits, const LocalMemory& memory) : limits_(limits), memory_(memory) {}

  // Posts the first buffers in `queue`, which holds `most`.
  Status begin(fid_ep* queue, std::size_t most) {
    queue_ = queue;
    limits_.most_receives = std::min(limits_.most_receives, most);
    return add(limits_.receives(0));
  }
  // Adds buffers for so many connections. Without memory for them, peers repeat messages.
  void follow(std::size_t connections);
  // Posts a buffer whose message was handled. If the provider refuses it for now, post_refused() does so later.
  void post_again(Receive& buffer);
  bool any_refused() const { return !refused_.empty(); }
  void post_refused() {
    for (Receive* buffer : std::exchange(refused_, {})) post_again(*buffer);
  }
  std::size_t count() const { return buffers_.size(); }

 private:
  Status add(std::size_t count);
  ssize_t post(Receive& buffer) const {  // returns the code of fi_recv
    void* const descriptor = buffer.registered != nullptr ? fi_mr_desc(buffer.registered.get()) : nullptr;
    return fi_recv(queue_, buffer.bytes.data(), buffer.bytes.size(), descriptor, FI_ADDR_UNSPEC,
                   &buffer.provider_context);
  }

  QueueLimits limits_;
  const LocalMemory& memory_;
  fid_ep* queue_ = nullptr;
  std::vector<std::unique_ptr<Receive>> buffers_;
  std::vector<Receive*> refused_;  // of buffers_
};

// Replies: the messages that this process sends to peers besides its own operations: the answers of its handler, which
// executes the requests of peers here; probes, and DISCONNECT. It keeps the requests that wait for an accumulate lock,
// and the answers that the provider has refused, and limits how many messages the provider has at once.
//
// Not thread-safe: Fabric's mutex guards it. Errors: an answer that cannot be sent is logged and dropped; its peer is
// out of reach. Cost: a send, or a try for each peer with unsent answers. Memory: nothing per peer; about 200 bytes for
// each that is unsent or in flight, and a slot, where local memory is registered.
class Replies {
 public:
  // Returns 0 if the provider has the message now, else a negative libfabric code.
  using Send = std::function<ssize_t(Reply&)>;
  // `most`: how many the provider may have at once. `memory`: from which their slots are.
  Replies(std::size_t most, LocalMemory& memory, Statistics& statistics, Send send)
      : most_(most), memory_(memory), statistics_(statistics), send_(std::move(send)) {}

  MessageHandler& handler() { return handler_; }
  // Executes a request, and answers it; later, if it must wait for an accumulate lock, or an earlier one of its sender
  // does.
  void execute(Peer sender, std::span<const std::byte> message) {
    const bool behind = std::ranges::find(deferred_, sender, &Deferred::sender) != deferred_.end();
    if (behind || !execute_now(sender, message))
      patiently([&] { deferred_.push_back({sender, std::vector(message.begin(), message.end())}); });
  }
  // Executes the requests that were deferred, in their order per peer.
  void execute_deferred();
  bool any_deferred() const { return !deferred_.empty(); }

  // Returns whether the provider may have one more.
  bool room() const { return in_flight_ < most_; }
  // Returns a message to the peer without data; `operation`: that of the header.
  static std::unique_ptr<Reply> take(Peer peer, MessageKind kind = MessageKind::kReply, std::uint64_t operation = 0) {
    auto reply = std::make_unique<Reply>();
    reply->peer = peer;
    reply->header.kind = kind;
    reply->header.operation = operation;
    return reply;
  }
  // Sends it at once. Returns what Send returns.
  ssize_t send(std::unique_ptr<Reply> reply);
  // Sends an answer, unless earlier ones to the peer are unsent. Keeps it if the provider refuses it.
  void answer(std::unique_ptr<Reply> reply);
  // Keeps an answer until send_unsent().
  void keep(std::unique_ptr<Reply> reply) {
    patiently([&] { unsent_[reply->peer].push_back(std::move(reply)); });
  }
  // Sends the answers that were kept, in their order per peer, and tries one for each peer that takes none. An answer
  // that the provider refuses for longer than `timeout` is dropped; zero: no limit.
  void send_unsent(Clock::duration timeout);
  // Notes that the provider has completed it.
  void completed(Reply& reply) {
    --in_flight_;
    drop(std::unique_ptr<Reply>(&reply));
  }

  // Frees a message that is sent, or is not sent after all.
  void drop(std::unique_ptr<Reply> reply) {
    if (reply->slot != nullptr) memory_.release(reply->slot);
  }

  bool any_unsent() const { return !unsent_.empty(); }
  // Returns whether no request is deferred, no answer is unsent, and no message has a completion to come.
  bool idle() const { return deferred_.empty() && unsent_.empty() && in_flight_ == 0; }

 private:
  // `code`: the result of Send, unless -FI_EAGAIN; or the reply was refused for too long.
  void end(std::unique_ptr<Reply> reply, ssize_t code);
  bool execute_now(Peer sender, std::span<const std::byte> message);

  const std::size_t most_;
  LocalMemory& memory_;
  Statistics& statistics_;
  const Send send_;
  MessageHandler handler_;
  // Requests that wait for an accumulate lock, and later ones of their senders, which limit them.
  struct Deferred {
    Peer sender;
    std::vector<std::byte> message;
  };
  std::deque<Deferred> deferred_;
  std::map<Peer, std::deque<std::unique_ptr<Reply>>> unsent_;  // refused with EAGAIN, or behind a refused one
  Peer first_ = 0;                                             // whose answers are the first to be sent next
  std::size_t in_flight_ = 0;                                  // that the provider has
};

}  // namespace farside
