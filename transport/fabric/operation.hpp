// SPDX-License-Identifier: BSD-3-Clause
// The operation contexts of libfabric, which identify the operation of each completion, and their registered memory.
// Contexts are not thread-safe: the mutex of its peer (peers.hpp) guards an operation and its pool, Fabric's mutex
// guards receives and replies.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "transport/base/address.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"

namespace farside {

struct PeerState;

// LocalMemory: registration of the buffers of this process that a provider with FI_MR_LOCAL (fi_mr(3)) reads and
// writes. Small buffers go through registered slots; large ones are registered while their operation is in flight.
//
// Operations of this process hold at most kMostOwn slots at a time, and at most kMostLarge registrations of large
// buffers, so that registered memory does not grow with the number of operations in an epoch. The limit does not apply
// to answers, because processes that wait for each other's answers must be able to send them. If the registration of
// further slots is refused (RLIMIT_MEMLOCK), all wait for a free one. Operations leave the last kForAnswers slots to
// answers, since a request keeps its slot until the peer has answered.
//
// Thread safety: any thread may call all members but begin(). Memory: 448 KiB for each 64 slots in use at once, never
// freed before the end.
class LocalMemory {
 public:
  // A message fits into a slot.
  static constexpr std::size_t kSlotBytes = 8704;
  static_assert(kMaxMessage <= kSlotBytes);
  static constexpr std::size_t kMostOwn = 512;
  static constexpr std::size_t kMostLarge = 128;
  static constexpr std::size_t kForAnswers = 8;
  struct Slot {
    std::byte* bytes = nullptr;
    void* descriptor = nullptr;
    bool own = false;  // an operation of this process holds it
  };

  LocalMemory() = default;
  // Called for the domain of a provider with FI_MR_LOCAL only.
  void begin(fid_domain* domain) { domain_ = domain; }
  // If false, nothing here is used, and all descriptors are null.
  bool needed() const { return domain_ != nullptr; }

  // Gives a free slot to an operation of this process (`own`) or to an answer. Returns 0, -FI_EAGAIN until others are
  // free, or -FI_ENOMEM if not even the first slots can be registered.
  int take(bool own, Slot*& slot) {
    const std::scoped_lock held(mutex_);
    if (own && own_ == kMostOwn) return -FI_EAGAIN;
    if (free_.size() <= (own ? kForAnswers : 0) && !grow()) return slots_.empty() ? -FI_ENOMEM : -FI_EAGAIN;
    slot = free_.back();
    free_.pop_back();
    slot->own = own;
    own_ += own ? 1 : 0;
    return 0;
  }
  void release(Slot* slot) {
    const std::scoped_lock held(mutex_);
    own_ -= slot->own ? 1 : 0;
    free_.push_back(slot);
  }

  // Admits the registration of one more large buffer. Returns false until operations of this process complete.
  bool begin_large() {
    const std::scoped_lock held(mutex_);
    if (large_ == kMostLarge) return false;
    ++large_;
    return true;
  }
  void end_large(FabricHandle<fid_mr>& registered) {
    registered.reset();
    const std::scoped_lock held(mutex_);
    --large_;
  }

  // Registers memory. `access`: FI_SEND, FI_RECV, FI_READ, FI_WRITE; without FI_RECV and FI_READ it may be read-only.
  // Returns 0 or a negative libfabric code. The kernel pins the pages: 100 ms per GiB.
  int register_memory(const void* base, std::size_t bytes, std::uint64_t access, FabricHandle<fid_mr>& out) const {
    fid_mr* region = nullptr;
    const int code = fi_mr_reg(domain_, base, bytes, access, 0, 0, 0, &region, nullptr);
    if (code == 0) out.reset(region);
    return code;
  }

 private:
  static constexpr std::size_t kSlotsAtATime = 64;
  struct Slab {
    std::vector<std::byte> bytes;
    FabricHandle<fid_mr> region;
  };
  bool grow() {
    if (refused_) return false;
    Slab slab;
    slab.bytes.resize(kSlotsAtATime * kSlotBytes);
    if (register_memory(slab.bytes.data(), slab.bytes.size(), FI_SEND | FI_RECV | FI_READ | FI_WRITE, slab.region) !=
        0) {
      refused_ = !slots_.empty();
      return false;
    }
    // Without memory for all slots, there are fewer.
    free_.reserve(slots_.size() + kSlotsAtATime);
    Slab& kept = slabs_.emplace_back(std::move(slab));
    for (std::size_t i = 0; i < kSlotsAtATime; ++i) {
      free_.push_back(
          &slots_.emplace_back(Slot{kept.bytes.data() + i * kSlotBytes, fi_mr_desc(kept.region.get()), false}));
    }
    return true;
  }

  fid_domain* domain_ = nullptr;
  std::mutex mutex_;  // guards the following members; held for a few loads and stores, or a registration
  std::vector<Slab> slabs_;
  std::deque<Slot> slots_;  // never moved
  std::vector<Slot*> free_;
  bool refused_ = false;   // there will be no more slots
  std::size_t own_ = 0;    // slots that operations of this process hold
  std::size_t large_ = 0;  // large buffers that are registered
};

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
struct FabricOperation : Context {
  FabricOperation(PeerState& to, std::uint32_t number) : Context(Kind::kOperation), peer(to), index(number) {}
  // Makes it a request, which is complete when it is sent and answered.
  void await_reply() {
    request = awaits_reply = true;
    completions_left = 2;
  }
  Pending* pending = nullptr;  // null: not issued, or abandoned
  Pending::Class counted = Pending::kMessages;
  PeerState& peer;
  const std::uint32_t index;          // in the pool of the peer
  std::uint32_t generation = 0;       // changes with each use, so that a stray reply is recognised
  std::uint8_t completions_left = 0;  // completions still to come
  bool awaits_reply = false;
  bool request = false;                    // to a handler, which replies
  bool notification = false;               // a message without a reply
  std::uint32_t notifications_before = 0;  // to the peer, and this one
  // A copy of small operands, where local buffers need not be registered.
  alignas(16) std::array<std::byte, kCopiedAtCall> operands;
  // Where local buffers must be registered:
  LocalMemory::Slot* slot = nullptr;  // holds the data that are sent, or receives the fetched data
  FabricHandle<fid_mr> registered;    // registration of a large buffer
  void* into = nullptr;               // where data from the slot are copied
  std::size_t into_bytes = 0;
  // Of a message:
  HandlerRequest message{};
  std::unique_ptr<OperationList> list;  // null if there are no operations
};

// The operations towards one peer. They are reused, since the provider may hold their addresses, and freed while the
// peer is not used. Memory: 600 bytes per operation that was in flight at once.
class OperationPool {
 public:
  explicit OperationPool(PeerState& peer) : peer_(peer) {}
  FabricOperation& take() {
    if (free_.empty()) {
      // release() needs no memory.
      if (free_.capacity() <= all_.size()) free_.reserve(2 * all_.size() + 1);
      all_.push_back(std::make_unique<FabricOperation>(peer_, static_cast<std::uint32_t>(all_.size())));
      free_.push_back(all_.back().get());
    }
    FabricOperation& operation = *free_.back();
    free_.pop_back();
    operation.generation = ++generations_;
    return operation;
  }
  void release(FabricOperation& operation) {
    operation.awaits_reply = false;
    operation.request = false;
    operation.notification = false;
    operation.pending = nullptr;
    if (operation.list != nullptr) OperationList::keep_spare(std::move(operation.list));
    operation.message.locked = nullptr;
    operation.registered.reset();
    operation.into = nullptr;
    free_.push_back(&operation);
  }
  using Operations = std::vector<std::unique_ptr<FabricOperation>>;
  // Gives the operations away to be freed, unless some are in use.
  Operations take_unused() {
    if (free_.size() < all_.size()) return {};
    free_.clear();
    free_.shrink_to_fit();
    return std::exchange(all_, {});
  }
  // Null if there is none with this index.
  FabricOperation* find(std::uint64_t index) const { return index < all_.size() ? all_[index].get() : nullptr; }
  template <class Do>
  void for_each(Do&& act) {
    for (const std::unique_ptr<FabricOperation>& operation : all_) act(*operation);
  }

 private:
  PeerState& peer_;
  std::uint32_t generations_ = 0;
  Operations all_;
  std::vector<FabricOperation*> free_;
};

// A buffer for an incoming message.
struct Receive : Context {
  Receive() : Context(Kind::kReceive) {}
  alignas(16) std::array<std::byte, kMaxMessage> bytes;
  FabricHandle<fid_mr> registered;
};

// A reply of this process's handler, a probe, or DISCONNECT.
struct Reply : Context {
  Reply() : Context(Kind::kReply) {}
  bool is_answer() const { return header.kind == MessageKind::kReply; }
  Peer peer = 0;
  bool copied = false;                                    // by the provider: there is no completion
  std::chrono::steady_clock::time_point refused_since{};  // first refusal by the provider
  ReplyHeader header{};
  std::vector<std::byte> fetched;
  LocalMemory::Slot* slot = nullptr;  // holds the message, where local buffers must be registered
};

}  // namespace farside
