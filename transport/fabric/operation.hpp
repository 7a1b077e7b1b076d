// SPDX-License-Identifier: BSD-3-Clause
// The operation contexts of libfabric, which identify the operation of each completion. Not thread-safe: the mutex of
// its peer (peers.hpp) guards an operation and its pool, Fabric's mutex guards receives and replies.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rdma/fabric.h>

#include "transport/base/address.hpp"
#include "transport/fabric/buffers.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/operation_list.hpp"

namespace farside {

// The header of a message in a ring (message_ring.hpp).
struct RingFrame {
  static constexpr std::uint64_t kArrived = 0xfa27'51de'fa27'51de;  // without a zero byte
  std::uint64_t bytes;                                              // of the message
  std::uint64_t arrived;                                            // kArrived, written last
};

// Base class of everything that is used as an operation context.
struct Context {
  enum class Kind : std::uint8_t { kOperation, kReceive, kReply };
  fi_context2 provider_context{};  // the provider's (FI_CONTEXT2)
  Kind kind;
  RingFrame frame{};                 // of the message that is sent
  const fid_ep* endpoint = nullptr;  // on which it was issued; null for receives
  explicit Context(Kind which) : kind(which) {}
};

// An operation issued by this process. A request to a handler is complete when both its send and its reply are, or,
// through a ring, when its reply is.
struct Operation : Context {
  Operation(Peer to, std::uint32_t number) : Context(Kind::kOperation), peer(to), index(number) {}
  Pending* pending = nullptr;  // null: not in use, or abandoned
  const Peer peer;
  Operation* previous = nullptr;  // among those that the provider has for the peer (peers.hpp)
  Operation* next = nullptr;
  const std::uint32_t index;          // in the pool of the peer
  std::uint32_t generation = 0;       // changes with each use, so that a stray reply is recognised
  std::uint8_t completions_left = 0;  // completions still to come
  bool awaits_reply = false;
  bool request = false;            // a request to a handler
  bool notification = false;       // a message without a reply
  bool sent_outside_ring = false;  // a message that was sent, although the connection has a ring (message_ring.hpp)
  std::uint32_t notifications_before = 0;  // to the peer, and this one
  bool run = false;                        // a run of writes (in_flight.hpp)
  Operation* covers = nullptr;             // the run that ends with it
  OperandCopy operands;                    // small operands, where local buffers need not be registered
  // Where local buffers must be registered (buffers.hpp):
  LocalMemory::Slot* slot = nullptr;  // holds the data that are sent, or receives the fetched data
  FabricHandle<fid_mr> registered;    // registration of a large buffer
  void* into = nullptr;               // where data from the slot are copied
  std::size_t into_bytes = 0;
  bool swapped = false;  // in the other byte order
  // Of a request:
  RequestHeader header{};
  std::unique_ptr<OperationList> list;  // null if there are no operations
  std::array<ControlStep, kMostControls> steps{};
  void* fetched = nullptr;  // receives the data that follow those of the list
  std::size_t fetched_bytes = 0;
  LockedResult* locked_result = nullptr;  // instead of `fetched`, for a list between two steps
};

// The operations towards one peer. They are reused, since the provider may hold their addresses, and freed while the
// peer is not used. Memory: 592 bytes per operation that was in flight at once.
class OperationPool {
 public:
  explicit OperationPool(Peer peer) : peer_(peer) {}
  Operation& take() {
    if (free_.empty()) {
      // release() needs no memory.
      if (free_.capacity() <= all_.size()) free_.reserve(2 * all_.size() + 1);
      all_.push_back(std::make_unique<Operation>(peer_, static_cast<std::uint32_t>(all_.size())));
      free_.push_back(all_.back().get());
    }
    Operation& operation = *free_.back();
    free_.pop_back();
    operation.generation = ++generations_;
    return operation;
  }
  void release(Operation& operation) {
    operation.awaits_reply = false;
    operation.request = false;
    operation.notification = false;
    operation.sent_outside_ring = false;
    operation.run = false;
    operation.pending = nullptr;
    if (operation.list != nullptr) OperationList::keep_spare(std::move(operation.list));
    operation.locked_result = nullptr;
    operation.registered.reset();
    operation.into = nullptr;
    operation.swapped = false;
    free_.push_back(&operation);
  }
  using Operations = std::vector<std::unique_ptr<Operation>>;
  // Gives the operations away to be freed, unless some are in use.
  Operations take_unused() {
    if (free_.size() < all_.size()) return {};
    free_.clear();
    free_.shrink_to_fit();
    return std::exchange(all_, {});
  }
  // Takes a reply from the network, and checks every field. If the operation with this index awaits the reply, stores
  // the data or the error of the reply in it. Returns this operation, which then awaits one completion less. Returns
  // null, and changes nothing, if the operation does not await the reply.
  Operation* take_reply(std::uint64_t index, const ReplyHeader& header, std::span<const std::byte> data);

  template <class Do>
  void for_each(Do&& act) {
    for (const std::unique_ptr<Operation>& operation : all_) act(*operation);
  }

 private:
  const Peer peer_;
  std::uint32_t generations_ = 0;
  Operations all_;
  std::vector<Operation*> free_;
};

// A buffer for an incoming message.
struct Receive : Context {
  Receive() : Context(Kind::kReceive) {}
  alignas(16) std::array<std::byte, kMaxMessage> bytes;
  FabricHandle<fid_mr> registered;
};

// A reply of this process's handler, or a probe.
struct Reply : Context {
  Reply() : Context(Kind::kReply) {}
  Peer peer = 0;
  bool probe = false;
  bool copied = false;                                    // by the provider: there is no completion
  std::chrono::steady_clock::time_point refused_since{};  // first refusal by the provider
  ReplyHeader header{};
  std::vector<std::byte> fetched;
  LocalMemory::Slot* slot = nullptr;  // holds the message, where local buffers must be registered
};

}  // namespace farside
