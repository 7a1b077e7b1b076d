// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/agent.hpp"

#include <atomic>
#include <cstring>
#include <optional>

#include "transport/base/random.hpp"
#include "transport/regions/attached_regions.hpp"

namespace farside {
namespace {

const char* find_fault_of_put(const RequestHeader& request, std::span<const std::byte> payload,
                              const Agent::Region& region) {
  if (request.count > kMaxPutAndAdd || payload.size() != request.count + sizeof(ControlAdd)) return "bad length";
  if (request.offset > region.bytes || request.count > region.bytes - request.offset) return "beyond the region";
  ControlAdd add;
  std::memcpy(&add, payload.data() + request.count, sizeof add);
  const bool inside = region.control_bytes >= sizeof add.value && add.word <= region.control_bytes - sizeof add.value;
  return inside && add.word % sizeof add.value == 0 ? nullptr : "no control word";
}

// Nothing if the request is well formed and within the region.
const char* find_fault(const RequestHeader& request, std::span<const std::byte> payload, const Agent::Region& region) {
  if (static_cast<std::size_t>(request.op) >= kReduceOps || static_cast<std::size_t>(request.type) >= kBasicTypes) {
    return "unknown operation or type";
  }
  if (request.kind == MessageKind::kPutAndAdd) return find_fault_of_put(request, payload, region);
  const std::size_t extent = traits(request.type).extent;
  if (request.count == 0 || extent * request.count > kMaxPayload) return "bad element count";
  if (request.kind == MessageKind::kRegions) {
    if (region.attached == nullptr) return "no regions are attached here";
    return payload.empty() && extent * request.count >= sizeof(AttachedRegions::Page) ? nullptr : "bad length";
  }
  const std::size_t bytes = span_of(request.type, request.count);
  if (request.offset > region.bytes || bytes > region.bytes - request.offset) return "beyond the region";
  if (request.kind == MessageKind::kCompareAndSwap) {
    if (has_gap(request.type)) return "operation not defined for the type";
    return request.count == 1 && payload.size() == 2 * extent ? nullptr : "bad length";
  }
  if (!allowed(request.op, request.type)) return "operation not defined for the type";
  return payload.size() == (request.op == ReduceOp::kNoOp ? 0 : bytes) ? nullptr : "bad length";
}

}  // namespace

std::uint64_t Agent::publish(Region region) {
  std::uint64_t id = random_bits();
  while (regions_.contains(id)) id = random_bits();
  regions_.emplace(id, std::move(region));
  return id;
}

void Agent::admit(std::uint64_t id, std::vector<std::uint64_t> peers, bool always_locked) {
  Region& region = regions_.at(id);
  region.peers = std::move(peers);
  region.always_locked = always_locked;
}

Agent::Answer Agent::execute(std::span<const std::byte> message) {
  Answer answer;
  RequestHeader request;
  if (message.size() < sizeof request) {
    answer.refused = "shorter than its header";
    return answer;
  }
  std::memcpy(&request, message.data(), sizeof request);
  const auto found = regions_.find(request.region);
  if (found == regions_.end() || request.sender >= found->second.peers.size()) {
    answer.refused = "unknown region or sender";
    return answer;
  }
  Region& region = found->second;
  const std::span<const std::byte> payload = message.subspan(sizeof request);
  answer.known_sender = true;
  answer.peer = region.peers[request.sender];
  answer.header = {MessageKind::kReply, ReplyStatus::kDone, 0, request.generation, request.operation};
  answer.refused = find_fault(request, payload, region);
  if (answer.refused != nullptr) {
    answer.header.status = ReplyStatus::kRefused;
    return answer;
  }
  const std::size_t extent = traits(request.type).extent;
  if (request.kind == MessageKind::kRegions) {
    answer.fetched.resize(extent * request.count);
    region.attached->read_page(static_cast<int>(request.sender), request.offset, answer.fetched);
    return answer;
  }
  std::byte* target = region.base + request.offset;
  if (request.kind == MessageKind::kPutAndAdd) {
    ControlAdd add;
    std::memcpy(&add, payload.data() + request.count, sizeof add);
    std::memcpy(target, payload.data(), request.count);
    // Sequentially consistent: it hands over what was put, as the control words of neighbours do.
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(region.control + add.word));
    const std::uint64_t before = word.fetch_add(add.value, std::memory_order_seq_cst);
    answer.fetched.resize(sizeof before);
    std::memcpy(answer.fetched.data(), &before, sizeof before);
    return answer;
  }
  const AtomicWay way = region.always_locked ? AtomicWay::kLocked : atomic_way(request.type, target);
  if (request.fetch != 0) answer.fetched.resize(extent * request.count);
  void* fetched = request.fetch != 0 ? answer.fetched.data() : nullptr;
  const auto work = [&] {
    std::optional<AccumulateLock> lock;
    if (way == AtomicWay::kLocked) lock.emplace(*region.lock);
    if (request.kind == MessageKind::kCompareAndSwap) {
      answer.fetched.resize(extent);
      compare_and_swap(way, request.type, target, payload.data() + extent, payload.data(), answer.fetched.data());
    } else {
      combine(way, request.op, request.type, target, payload.data(), fetched, request.count);
    }
  };
  const auto address = reinterpret_cast<std::uint64_t>(target);
  if (region.attached == nullptr) {
    work();
  } else if (!region.attached->while_attached(address, span_of(request.type, request.count), work)) {
    answer.refused = "not attached";
    answer.header.status = ReplyStatus::kRefused;
    answer.fetched.clear();
  }
  return answer;
}

}  // namespace farside
