// SPDX-License-Identifier: BSD-3-Clause
// The operation contexts of libfabric: what each completion belongs to. Not thread-safe: Fabric's mutex guards them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <rdma/fabric.h>

#include "transport/base/address.hpp"
#include "transport/base/random.hpp"
#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/operation_list.hpp"

namespace farside {

// Base class of everything that is used as an operation context.
struct Context {
  enum class Kind : std::uint8_t { kOperation, kReceive, kReply };
  fi_context2 provider_context{};  // the provider's (FI_CONTEXT2)
  Kind kind;
  const fid_ep* endpoint = nullptr;  // on which it was issued; null for receives
  explicit Context(Kind which) : kind(which) {}
};

// An operation issued by this process. A request to a handler is complete when both its send and its reply are.
struct Operation : Context {
  Operation() : Context(Kind::kOperation) {}
  Pending* pending = nullptr;    // null: not in use, or abandoned
  Peer peer = 0;
  Operation* previous = nullptr;  // among those that the provider has for the peer (peer_states.hpp)
  Operation* next = nullptr;
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // changes with each use, so that a stray reply is recognised
  std::uint8_t completions_left = 0;  // completions still to come
  bool awaits_reply = false;
  bool request = false;          // a request to a handler
  OperandCopy operands;          // small operands, where local buffers need not be registered
  // Where local buffers must be registered (local_memory.hpp):
  LocalMemory::Slot* slot = nullptr;    // holds the data that are sent, or receives the fetched data
  FabricHandle<fid_mr> registered;      // registration of a large buffer
  void* into = nullptr;                 // where data from the slot are copied
  std::size_t into_bytes = 0;
  // Of a request:
  RequestHeader header{};
  std::unique_ptr<OperationList> list;  // null if there are no operations
  std::array<ControlStep, kMostControls> steps{};
  void* fetched = nullptr;              // receives the data that follow those of the list
  std::size_t fetched_bytes = 0;
  LockedResult* locked_result = nullptr;  // instead of `fetched`, for a list between two steps
};

// Operations are never freed, only reused: the provider may hold their addresses. Memory: 544 bytes per operation
// that was under way at once.
class OperationPool {
 public:
  Operation& take() {
    if (free_.empty()) {
      const auto index = static_cast<std::uint32_t>(all_.size());
      Operation& added = all_.emplace_back();
      added.index = index;
      return added;
    }
    Operation& operation = all_[free_.back()];
    free_.pop_back();
    return operation;
  }
  void release(Operation& operation) {
    ++operation.generation;
    operation.awaits_reply = false;
    operation.request = false;
    operation.pending = nullptr;
    operation.list.reset();
    operation.locked_result = nullptr;
    operation.registered.reset();
    operation.into = nullptr;
    free_.push_back(operation.index);
  }
  // The number of the operation in its request. The reply repeats it, so that only a receiver of the request can
  // reply.
  std::uint64_t number(const Operation& operation) const { return operation.index ^ mask_; }
  // Takes a reply from the network, and checks every field. Gives the operation that awaits the reply its data or an
  // error, and returns the operation, which then awaits one completion less. Returns null, and changes nothing, if no
  // operation awaits the reply.
  Operation* take_answer(std::span<const std::byte> message);

  template <class Do>
  void for_each(Do&& act) {
    for (Operation& operation : all_) act(operation);
  }

 private:
  const std::uint64_t mask_ = random_bits();
  std::deque<Operation> all_;
  std::vector<std::uint32_t> free_;
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
  std::chrono::steady_clock::time_point refused_since{};  // first refusal by the provider
  ReplyHeader header{};
  std::vector<std::byte> fetched;
  LocalMemory::Slot* slot = nullptr;    // kept when the reply is reused
};

}  // namespace farside
