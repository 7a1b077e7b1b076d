// SPDX-License-Identifier: BSD-3-Clause
// LocalMemory: registration of the buffers of this process that a provider with FI_MR_LOCAL (fi_mr(3)) reads and
// writes. Small buffers go through registered slots; large ones are registered while their operation is in flight.
//
// Operations of this process hold at most kMostOwn slots at a time, and at most kMostLarge registrations of large
// buffers, so that registered memory does not grow with the number of operations in an epoch. The limit does not apply
// to answers, because processes that wait for each other's answers must be able to send them.
//
// A process may lock little memory (RLIMIT_MEMLOCK). If the registration of further slots was refused, operations and
// answers wait for a free one of the existing slots. Operations leave the last kForAnswers slots to answers, since a
// request keeps its slot until the peer has answered.
//
// Thread safety: any thread may call all members but begin() and end(). Memory: 448 KiB for each 64 slots in use at
// once, never freed before the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <sys/types.h>
#include <sys/uio.h>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "transport/base/result.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/handler/message.hpp"

namespace farside {

struct Context;  // operation.hpp
struct Operation;

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
  // Ends all registrations.
  void end() {
    slabs_.clear();
    domain_ = nullptr;
  }
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
    for (std::size_t i = 0; i < kSlotsAtATime; ++i) {
      free_.push_back(
          &slots_.emplace_back(Slot{slab.bytes.data() + i * kSlotBytes, fi_mr_desc(slab.region.get()), false}));
    }
    slabs_.push_back(std::move(slab));
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

// Preparation of operands and messages for the provider. Where local buffers must be registered, they are copied to or
// from a slot of registered memory, or get a registration of their own. Otherwise the provider gets their addresses.
//
// All functions may be called again for an operation if the provider had no room: the data are copied, and a slot is
// taken, only once. Not thread-safe: Fabric calls them under its mutex. Errors: negative libfabric codes, those of
// LocalMemory::take. Cost: a copy of at most LocalMemory::kSlotBytes.

// A local buffer as the provider takes it.
struct ProviderBuffer {
  void* at = nullptr;
  void* descriptor = nullptr;
};

// The data that an operation sends, or the place where it receives data. `registered`: the registration of a buffer
// larger than a slot, which the operation takes. Return 0 or a negative libfabric code.
int outgoing(LocalMemory& memory, Operation& operation, const void* from, std::size_t bytes,
             FabricHandle<fid_mr>& registered, ProviderBuffer& local);
int incoming(LocalMemory& memory, Operation& operation, void* into, std::size_t bytes, FabricHandle<fid_mr>& registered,
             ProviderBuffer& local);

// Sends one message of several parts. `slot`: that of the context, which the message takes if it needs one.
ssize_t send_message(LocalMemory& memory, fid_ep* endpoint, const iovec* parts, std::size_t count,
                     LocalMemory::Slot*& slot, Context& context);

}  // namespace farside
