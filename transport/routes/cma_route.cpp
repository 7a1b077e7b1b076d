// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/cma_route.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <vector>

#include "transport/data/reduce_op.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/routes/coalescing_limits.hpp"

namespace farside {
namespace {

// Writes pairs without their gaps: the bytes of a gap may be other data, which may change meanwhile.
Status write_pairs(pid_t pid, std::uint64_t remote, BasicType type, std::byte* local, std::size_t count) {
  const BasicTypeTraits& of = traits(type);
  const std::size_t lengths[] = {of.first, std::size_t{of.size} - of.first};
  const std::size_t offsets[] = {0, of.second};
  std::vector<iovec> here, there;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int member : {0, 1}) {
      const std::size_t at = i * of.extent + offsets[member];
      here.push_back({local + at, lengths[member]});
      there.push_back({reinterpret_cast<void*>(remote + at), lengths[member]});  // NOLINT(performance-no-int-to-ptr)
    }
  }
  return write_process_memory(pid, here, there);
}

}  // namespace

Status CmaRoute::operate(const NodeTarget& target, const NodeTargetMore& memory, const DataOperation& operation) {
  if (memory.handler != nullptr && operation.bytes() <= kMostCoalesced && memory.handler->is_polling()) {
    const std::array lists{std::make_unique<OperationList>()};
    lists.front()->add(operation);
    return execute(memory, lists);
  }
  switch (operation.kind) {
    case OperationKind::kPut:
      return write_process_memory(memory.pid, memory.address + operation.offset, operation.origin, operation.count);
    case OperationKind::kGet:
      return read_process_memory(memory.pid, memory.address + operation.offset, operation.fetched, operation.count);
    case OperationKind::kAccumulate: return accumulate(target, memory, operation);
    case OperationKind::kCompareAndSwap: break;
  }
  return compare_and_swap(target, memory, operation);
}

Status CmaRoute::compare_and_swap(const NodeTarget& target, const NodeTargetMore& memory,
                                  const DataOperation& operation) {
  rules_.count_slow(counts_, operation.type, nullptr, false);
  std::array<std::byte, 64> copy;
  const std::size_t extent = traits(operation.type).extent;
  const AccumulateLock held(target.accumulate_lock(lock_offset_));
  if (Status status = read_process_memory(memory.pid, memory.address + operation.offset, copy.data(), extent); !status)
    return status;
  farside::compare_and_swap(AtomicMethod::kLocked, operation.type, copy.data(), operation.origin, operation.compare,
                            operation.fetched);
  return write_process_memory(memory.pid, memory.address + operation.offset, copy.data(), extent);
}

// Reads, combines and writes back in parts, so that no other rank waits long for the lock.
Status CmaRoute::accumulate(const NodeTarget& target, const NodeTargetMore& memory, const DataOperation& operation) {
  const BasicType type = operation.type;
  rules_.count_slow(counts_, type, nullptr, false);
  alignas(16) std::array<std::byte, kLockedBytes> copy;
  const std::size_t extent = traits(type).extent;
  for (std::size_t done = 0; done < operation.count;) {
    const std::size_t part = std::min(operation.count - done, kLockedBytes / extent);
    const auto fragment = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    const std::uint64_t at = memory.address + operation.offset + done * extent;
    const AccumulateLock held(target.accumulate_lock(lock_offset_));
    const std::size_t span = span_of(type, part);
    if (Status status = read_process_memory(memory.pid, at, copy.data(), span); !status) return status;
    combine(AtomicMethod::kLocked, operation.op, type, copy.data(),
            fragment(static_cast<const std::byte*>(operation.origin)),
            fragment(static_cast<std::byte*>(operation.fetched)), part);
    if (operation.op != ReduceOp::kNoOp) {
      Status status = has_gap(type) ? write_pairs(memory.pid, at, type, copy.data(), part)
                                    : write_process_memory(memory.pid, at, copy.data(), span);
      if (!status) return status;
    }
    done += part;
  }
  return {};
}

}  // namespace farside
