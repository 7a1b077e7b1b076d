// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/message_ring.hpp"

#include <algorithm>
#include <array>
#include <sys/mman.h>

#include <rdma/fi_rma.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"

namespace farside {

ssize_t MessageRing::write(fid_ep* endpoint, std::span<const iovec> parts, Context& context, Release release) {
  constexpr std::size_t kMostParts = 3;
  std::array<iovec, kMostParts + 1> local;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    local[i] = parts[i];
    bytes += parts[i].iov_len;
  }
  local[parts.size()] = {&context.frame, sizeof context.frame};
  const std::size_t frame = frame_bytes(bytes);

  const std::scoped_lock held(mutex_);
  auto* const told = reinterpret_cast<std::uint64_t*>(memory_.data());
  credits_ = std::max(credits_, std::atomic_ref(*told).load(std::memory_order_acquire));
  if (written_ + frame > credits_ + kBytes) return -FI_EAGAIN;
  context.frame = {bytes, RingFrame::kArrived};
  const std::uint64_t at = peer_.base + kCreditBytes + written_ % kBytes;
  // The frame is behind the message in the stream of the connection, and ahead of it in memory.
  const std::array<fi_rma_iov, 2> there = {
      {{at + sizeof(RingFrame), bytes, peer_.key}, {at, sizeof(RingFrame), peer_.key}}};
  std::uint64_t flags = 0;
  void* own = nullptr;  // null: the provider would report errors with a context that may be reused by then
  switch (release) {
    case Release::kCompletion:
      flags = FI_COMPLETION;
      own = &context.provider_context;
      break;
    case Release::kAtOnce: flags = FI_INJECT; break;
    case Release::kAnswer: break;
  }
  const fi_msg_rma message{local.data(), nullptr, parts.size() + 1, FI_ADDR_UNSPEC, there.data(), there.size(), own, 0};
  const ssize_t code = fi_writemsg(endpoint, &message, flags);
  if (code == 0) written_ = behind(written_, frame);
  return code;
}

// The message that has arrived; empty if its frame cannot be right.
std::span<const std::byte> MessageRing::next_message() {
  RingFrame frame;
  std::memcpy(&frame, place(taken_), sizeof frame);
  if (frame.bytes > 0 && frame.bytes <= kMaxMessage) return {place(taken_) + sizeof frame, frame.bytes};
  if (!std::exchange(broken_, true)) log(LogLevel::kError, "a peer has written a message of {} bytes", frame.bytes);
  return {};
}

void MessageRing::give_credits(fid_ep* endpoint) {
  if (!connected()) return;
  if (fi_inject_write(endpoint, &taken_, sizeof taken_, FI_ADDR_UNSPEC, peer_.base, peer_.key) != -FI_EAGAIN)
    told_ = taken_;
}

std::unique_ptr<MessageRing> MessageRing::make(const FabricDomain& domain) {
  const fi_tx_attr& limits = *domain.info()->tx_attr;
  constexpr std::size_t kParts = 4, kPlaces = 2;  // of write()
  if (!domain.by_sockets() || limits.iov_limit < kParts || limits.rma_iov_limit < kPlaces) return nullptr;
  void* const memory = ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;  // NOLINT(performance-no-int-to-ptr)
  Mapping mapping(memory, kMemory);
  Result<Registration> made = domain.register_memory(memory, kMemory, random_bits() | 1);
  if (!made) return nullptr;
  const RemoteKey key = made.value().key;
  return std::make_unique<MessageRing>(std::span(static_cast<std::byte*>(memory), kMemory), key, limits.inject_size,
                                       std::move(mapping), std::move(made.value()));
}

}  // namespace farside
