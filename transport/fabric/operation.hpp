// SPDX-License-Identifier: BSD-3-Clause
// What farside hangs on libfabric's operation contexts: what to do when a completion comes back.
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

// First member of everything that is used as an operation context.
struct Context {
  enum class Kind : std::uint8_t { kOperation, kReceive, kReply };
  fi_context2 reserved{};  // the provider's (FI_CONTEXT2)
  Kind kind;
  const fid_ep* endpoint = nullptr;  // that has it; not of receives
  explicit Context(Kind which) : kind(which) {}
};

// An operation issued by this process. A request to a handler is complete when both its send and its reply are.
struct Operation : Context {
  Operation() : Context(Kind::kOperation) {}
  Pending* pending = nullptr;    // null: not in use, or given up
  Peer peer = 0;
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // moves with each use, so that a stray reply is recognised
  std::uint8_t parts = 0;        // completions still to come
  bool awaits_reply = false;
  OperandCopy operands;          // small ones, where local buffers need not be registered
  // Where local buffers must be registered (local_memory.hpp):
  LocalMemory::Slot* slot = nullptr;    // what is sent is there, or what is fetched will be
  FabricHandle<fid_mr> registered;      // the buffer itself
  void* into = nullptr;                 // what comes into the slot goes there
  std::size_t into_bytes = 0;
  // Of a request:
  RequestHeader header{};
  std::unique_ptr<OperationList> list;  // operations: null if there are none
  std::array<ControlStep, kMostControls> steps{};
  void* fetched = nullptr;              // for what comes back behind that of the list
  std::size_t fetched_bytes = 0;
  LockedResult* locked_result = nullptr;  // instead of that, of a list between two steps
};

// Operations are never freed, only reused: their addresses are with the provider.
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
    operation.pending = nullptr;
    operation.list.reset();
    operation.locked_result = nullptr;
    operation.registered.reset();
    operation.into = nullptr;
    free_.push_back(operation.index);
  }
  // What a request calls its operation. The answer brings it back, so nobody can answer who has not received the
  // request.
  std::uint64_t number(const Operation& operation) const { return operation.index ^ mask_; }
  // Reads what comes from the network: nothing in it is believed. Gives the operation that waits for this answer what
  // it brings (data, or an error), and returns it: it has one part less to wait for. Null, and nothing is changed, if
  // no operation waits for it.
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

// An answer of this process's handler on its way, or a probe.
struct Reply : Context {
  Reply() : Context(Kind::kReply) {}
  Peer peer = 0;
  bool probe = false;
  std::chrono::steady_clock::time_point refused_since{};  // by the provider
  ReplyHeader header{};
  std::vector<std::byte> fetched;
  LocalMemory::Slot* slot = nullptr;    // kept
};

}  // namespace farside
