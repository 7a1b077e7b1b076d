// SPDX-License-Identifier: BSD-3-Clause
// MessageRing: the messages of one connection over TCP, in both directions: RDMA writes into memory that the receiver
// polls, in place of sends and receives, for which libfabric's tcp provider signals the completion queue (progress.md).
//
// Each process gives the peer a ring of its memory, and the peer writes frames into it, one behind the other:
//
//   RingFrame    the number of bytes, and kArrived, which is written last
//   the message  at most kMaxMessage bytes, then up to 15 unused bytes
//
// A frame begins where the one before it ends, or at the start of the ring if the place behind it is not enough for the
// largest frame. The provider writes the data of a connection in their order, so a frame is complete when its kArrived
// is there. The receiver fills what it has taken with zeros: where a frame may begin, there are zeros until it arrives.
// From time to time it reports its position to the peer (credits), by a write of 8 bytes in front of the peer's own
// ring. While such a write is incomplete, the number there is too small, and the peer ignores it.
//
// Requests and notifications wait until the ring has room. An answer for which it has none is sent (fi_sendmsg),
// because no request or notification depends on its order. DISCONNECT and probes are always sent. The receiver takes
// the frames in the ring before it handles a message that it has received, so a sent message stays behind the frames
// before it.
//
// Thread safety: any thread may call write(). Fabric's mutex guards all else, and all calls that poll the provider.
// Errors: those of fi_writemsg(3); -FI_EAGAIN while the peer has no room. After an invalid frame, no more messages are
// taken from the ring. Cost: one RDMA write per message, and one of 8 bytes for every 16 KiB of messages. Memory: 64
// KiB for each of the first 64 connections; the system gives those pages of it that were used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <sys/types.h>
#include <sys/uio.h>
#include <utility>

#include <rdma/fi_endpoint.h>

#include "transport/fabric/operation.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/handler/message.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class MessageRing {
 public:
  // The memory of a ring: the credits from the peer, then the frames. Their places are numbered on and on; place N is
  // byte N modulo kBytes.
  static constexpr std::size_t kMemory = 65536;
  static constexpr std::size_t kCreditBytes = 64;
  static constexpr std::size_t kBytes = kMemory - kCreditBytes;
  static constexpr std::size_t kCreditStep = kMemory / 4;
  static constexpr std::size_t frame_bytes(std::size_t message) { return (sizeof(RingFrame) + message + 15) / 16 * 16; }
  // Returns the place of the frame behind one at this place.
  static constexpr std::uint64_t behind(std::uint64_t place, std::size_t frame) {
    place += frame;
    return place % kBytes > kBytes - frame_bytes(kMaxMessage) ? place - place % kBytes + kBytes : place;
  }

  // The ring by which messages are sent on this endpoint; null if this process or the peer has none.
  static MessageRing* of(fid_ep* endpoint) {
    auto* const ring = static_cast<MessageRing*>(endpoint->fid.context);
    return ring != nullptr && ring->connected() ? ring : nullptr;
  }

  // Returns a ring with its own memory; null if the provider needs none, or there is no memory.
  static std::unique_ptr<MessageRing> make(const FabricDomain& domain);
  // `memory`: kMemory bytes of zeros, which are registered, and which peers reach by `key`. `most_copied`: the
  // largest write, in bytes, that the provider copies at the call (FI_INJECT). `mapping`, `registration`: those of the
  // memory, if they are to end with this object.
  MessageRing(std::span<std::byte> memory, const RemoteKey& key, std::size_t most_copied, Mapping mapping = {},
              Registration registration = {})
      : memory_(memory),
        mapping_(std::move(mapping)),
        registration_(std::move(registration)),
        address_(key),
        most_copied_(most_copied) {}

  // For the peer; key 0 stands for no ring.
  const RemoteKey& address() const { return address_; }
  // Gives it the peer's ring, before the connection carries messages.
  void connect(const RemoteKey& peer) { peer_ = peer; }

  // Whether the provider copies a message of these parts at the call.
  bool copies(std::span<const iovec> parts) const {
    std::size_t bytes = sizeof(RingFrame);
    for (const iovec& part : parts) bytes += part.iov_len;
    return bytes <= most_copied_;
  }
  // When the parts of a message and its context, which holds the frame, may be used for something else.
  enum class Release : std::uint8_t {
    kCompletion,  // when the write has completed
    kAtOnce,      // as soon as write() returns; no completion follows. Precondition: copies()
    kAnswer,      // when the peer has answered, or the connection has ended; no completion follows
  };
  // Writes a message of at most three parts. Precondition: of() has given the ring. Returns 0 or a negative libfabric
  // code.
  ssize_t write(fid_ep* endpoint, std::span<const iovec> parts, Context& context, Release release);

  // Calls receive(std::span<const std::byte>) with each message that is there, aligned to 16 bytes, and gives the peer
  // credits, if it may need some. Returns whether there was one.
  template <class Receive>
  bool take(fid_ep* endpoint, bool needs_credits, Receive&& receive) {
    bool any = false;
    while (arrived()) {
      const std::span<const std::byte> message = next_message();
      if (message.empty()) break;
      receive(message);
      const std::size_t frame = frame_bytes(message.size());
      std::memset(place(taken_), 0, frame);
      taken_ = behind(taken_, frame);
      any = true;
    }
    if (needs_credits && owes_credits()) give_credits(endpoint);
    return any;
  }
  // Returns whether there is a message to take.
  bool any_message() const { return arrived() && !broken_; }
  // Returns whether credits must be sent to the peer.
  bool owes_credits() const { return taken_ - told_ >= kCreditStep; }

 private:
  bool connected() const { return peer_.key != 0; }
  std::byte* place(std::uint64_t number) const { return memory_.data() + kCreditBytes + number % kBytes; }
  bool arrived() const {
    auto* const word = reinterpret_cast<std::uint64_t*>(place(taken_) + offsetof(RingFrame, arrived));
    return std::atomic_ref(*word).load(std::memory_order_acquire) == RingFrame::kArrived;
  }
  std::span<const std::byte> next_message();
  void give_credits(fid_ep* endpoint);

  const std::span<std::byte> memory_;
  Mapping mapping_;
  Registration registration_;  // ends first
  const RemoteKey address_;
  const std::size_t most_copied_;
  RemoteKey peer_;

  // Of the peer's messages:
  std::uint64_t taken_ = 0;  // the place of the next frame
  std::uint64_t told_ = 0;   // what the peer was told of it
  bool broken_ = false;

  std::mutex mutex_;           // guards the following ones, and is held while a message is given to the provider
  std::uint64_t written_ = 0;  // the place of the next frame in the peer's ring
  std::uint64_t credits_ = 0;  // how far the peer is
};

}  // namespace farside
