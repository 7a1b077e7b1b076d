// SPDX-License-Identifier: BSD-3-Clause
// Operations on the data of a space's targets by the routes self, mapped and cma, and their completion. Over the
// fabric: space_fabric.cpp. How targets are made reachable: space.cpp.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/handler/node_handler.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space/space.hpp"

namespace farside {

Status Space::put(int rank, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    put_at(rank, to.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kPut, bytes);
  return operate(to, DataOperation::put(offset, origin, bytes), own);
}

Status Space::get(int rank, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own) {
  Target& from = target(rank);
  if (from.data != nullptr) [[likely]] {
    get_at(rank, from.data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kGet, bytes);
  return operate(from, DataOperation::get(offset, origin, bytes), own);
}

void Space::put_at_slow(int rank, std::byte* at, const void* origin, std::size_t bytes) {
  count(rank, Counted::kPut, bytes);
  copy_bytes(at, origin, bytes);
  stores_.made();
}

void Space::get_at_slow(int rank, const std::byte* at, void* origin, std::size_t bytes) const {
  count(rank, Counted::kGet, bytes);
  copy_bytes(origin, at, bytes);
}

void Space::count_shared_row(int rank, Counted what, std::size_t bytes) const {
  if (counts_ != nullptr) return counts_->add(rank, what, bytes);
  process_.statistics().add(route(rank), what, bytes);
}

void Space::count_slow(BasicType type, const void* address, bool by_handler) const {
  if (counts_ == nullptr) [[likely]] return;
  SlowAccumulate why = SlowAccumulate::kProvider;
  if (always_locked_) {
    why = SlowAccumulate::kCma;
  } else if (!traits(type).cpu_atomics) {
    why = SlowAccumulate::kType;
  } else if (atomic_method(type, address) == AtomicMethod::kLocked) {
    why = SlowAccumulate::kUnaligned;
  } else if (method(type, address) == AtomicMethod::kLocked) {
    why = SlowAccumulate::kFloatingPoint;
  }
  counts_->add_slow(why, by_handler);
}

Status Space::accumulate(int rank, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                         void* fetched, std::size_t elements, Access access, Outstanding* own) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    accumulate_at(rank, to.data + offset, op, type, origin, fetched, elements, access);
    return {};
  }
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp && fetched == nullptr) return {};
  return operate(to, DataOperation::accumulate(offset, op, type, origin, fetched, elements), own);
}

void Space::accumulate_at(int rank, std::byte* at, ReduceOp op, BasicType type, const void* origin, void* fetched,
                          std::size_t elements, Access access) {
  const std::size_t extent = traits(type).extent;
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  if (access == Access::kAlone) {
    combine(AtomicMethod::kLocked, op, type, at, origin, fetched, elements);
    stores_.made();
    return;
  }
  if (by_nic(type, at)) [[unlikely]]
    return atomic_by_nic_at(rank, at, DataOperation::accumulate(0, op, type, origin, fetched, elements));
  AtomicMethod under_lock = AtomicMethod::kLocked;
  if (method(type, at) == AtomicMethod::kAtomic) {
    const IntegerPhase by = integers_.begin(elements);
    if (by == IntegerPhase::kAtomics) [[likely]] {
      combine(AtomicMethod::kAtomic, op, type, at, origin, fetched, elements);
      integers_.end(by);
      // Every other operation is a read-modify-write, or stores nothing.
      if (op == ReduceOp::kReplace && fetched == nullptr) stores_.made();
      return;
    }
    if (by == IntegerPhase::kBoth) under_lock = AtomicMethod::kAtomic;
  } else {
    count_slow(type, at, false);
  }
  // In parts, so that no other rank waits long for the lock.
  const std::size_t most = elements * extent <= kLockedBytes ? elements : kLockedBytes / extent;
  for (std::size_t done = 0; done < elements;) {
    const std::size_t part = std::min(elements - done, most);
    const auto fragment = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    const AccumulateLock held(accumulate_lock(target(rank)));
    combine(under_lock, op, type, at + done * extent, fragment(static_cast<const std::byte*>(origin)),
            fragment(static_cast<std::byte*>(fetched)), part);
    done += part;
  }
  stores_.made();
}

void Space::accumulate_rows_at(int rank, std::byte* at, std::ptrdiff_t stride, ReduceOp op, BasicType type,
                               const std::byte* origin, std::byte* fetched, std::ptrdiff_t origin_stride,
                               std::size_t elements, std::size_t rows, Access access) {
  const std::size_t bytes = elements * traits(type).extent;
  const auto go_on = [&](std::size_t by_rows) {
    const auto by = static_cast<std::ptrdiff_t>(by_rows);
    at += by * stride;
    if (origin != nullptr) origin += by * origin_stride;
    if (fetched != nullptr) fetched += by * origin_stride;
  };
  if (bytes > kLockedBytes || by_nic(type, at)) {
    for (; rows > 0; --rows, go_on(1)) accumulate_at(rank, at, op, type, origin, fetched, elements, access);
    return;
  }
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, bytes * rows);
  const bool alone = access == Access::kAlone;
  const bool by_integers = !alone && may_take_atomics(type);
  const IntegerPhase by = by_integers ? integers_.begin(elements * rows) : IntegerPhase::kLock;
  const std::size_t at_a_time = kLockedBytes / bytes;
  while (rows > 0) {
    const std::size_t part = std::min(rows, at_a_time);
    std::optional<AccumulateLock> held;
    const auto take_lock = [&] {
      held.emplace(accumulate_lock(target(rank)));
      if (method(type, at) == AtomicMethod::kLocked) count_slow(type, at, false);
    };
    if (by == IntegerPhase::kLock) {
      if (!alone) take_lock();
      combine_rows(op, type, at, origin, fetched, elements, part, {stride, origin_stride, origin_stride});
      go_on(part);
    } else {
      for (std::size_t row = 0; row < part; ++row, go_on(1)) {
        // Rows may differ in their alignment.
        const AtomicMethod method_here = method(type, at);
        if (!held && (method_here == AtomicMethod::kLocked || by == IntegerPhase::kBoth)) take_lock();
        combine(method_here, op, type, at, origin, fetched, elements);
      }
    }
    rows -= part;
  }
  integers_.end(by);
  stores_.made();
}

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

Status Space::operate_by_cma(Target& to, const DataOperation& operation) {
  if (to.handler != nullptr && operation.bytes() <= kMostCoalesced && to.handler->is_polling()) {
    const std::array lists{std::make_unique<OperationList>()};
    lists.front()->add(operation);
    return to.handler->execute(process_, static_cast<std::uint32_t>(rank_), lists);
  }
  switch (operation.kind) {
    case OperationKind::kPut:
      return write_process_memory(to.pid, to.address + operation.offset, operation.origin, operation.count);
    case OperationKind::kGet:
      return read_process_memory(to.pid, to.address + operation.offset, operation.fetched, operation.count);
    case OperationKind::kAccumulate:
      return accumulate_by_cma(to, operation.offset, operation.op, operation.type, operation.origin, operation.fetched,
                               operation.count);
    case OperationKind::kCompareAndSwap: break;
  }
  count_slow(operation.type, nullptr, false);
  std::array<std::byte, 64> copy;
  const std::size_t extent = traits(operation.type).extent;
  const AccumulateLock held(accumulate_lock(to));
  if (Status status = read_process_memory(to.pid, to.address + operation.offset, copy.data(), extent); !status)
    return status;
  farside::compare_and_swap(AtomicMethod::kLocked, operation.type, copy.data(), operation.origin, operation.compare,
                            operation.fetched);
  return write_process_memory(to.pid, to.address + operation.offset, copy.data(), extent);
}

Status Space::accumulate_by_cma(Target& to, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                                void* fetched, std::size_t count) {
  count_slow(type, nullptr, false);
  // Reads, combines and writes back in parts, so that no other rank waits long for the lock.
  alignas(16) std::array<std::byte, kLockedBytes> copy;
  const std::size_t extent = traits(type).extent;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, kLockedBytes / extent);
    const std::uint64_t at = to.address + offset + done * extent;
    const AccumulateLock held(accumulate_lock(to));
    const std::size_t span = span_of(type, part);
    if (Status status = read_process_memory(to.pid, at, copy.data(), span); !status) return status;
    combine(AtomicMethod::kLocked, op, type, copy.data(),
            origin != nullptr ? static_cast<const std::byte*>(origin) + done * extent : nullptr,
            fetched != nullptr ? static_cast<std::byte*>(fetched) + done * extent : nullptr, part);
    if (op != ReduceOp::kNoOp) {
      Status status = has_gap(type) ? write_pairs(to.pid, at, type, copy.data(), part)
                                    : write_process_memory(to.pid, at, copy.data(), span);
      if (!status) return status;
    }
    done += part;
  }
  return {};
}

void Space::compare_and_swap_at(int rank, std::byte* at, BasicType type, const void* origin, const void* compare,
                                void* fetched) {
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  if (by_nic(type, at)) [[unlikely]]
    return atomic_by_nic_at(rank, at, DataOperation::compare_and_swap(0, type, origin, compare, fetched));
  AtomicMethod under_lock = AtomicMethod::kLocked;
  if (method(type, at) == AtomicMethod::kAtomic) [[likely]] {
    const IntegerPhase by = integers_.begin(1);
    if (by == IntegerPhase::kAtomics) [[likely]] {
      farside::compare_and_swap(AtomicMethod::kAtomic, type, at, origin, compare, fetched);
      integers_.end(by);
      return;
    }
    if (by == IntegerPhase::kBoth) under_lock = AtomicMethod::kAtomic;
  } else {
    count_slow(type, at, false);
  }
  const AccumulateLock held(accumulate_lock(target(rank)));
  farside::compare_and_swap(under_lock, type, at, origin, compare, fetched);
  stores_.made();
}

Status Space::compare_and_swap(int rank, std::uint64_t offset, BasicType type, const void* origin,
                               const void* compare, void* fetched) {
  Target& to = target(rank);
  if (to.data != nullptr) [[likely]] {
    compare_and_swap_at(rank, to.data + offset, type, origin, compare, fetched);
    return {};
  }
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  return operate(to, DataOperation::compare_and_swap(offset, type, origin, compare, fetched), nullptr);
}

// For a target that is not mapped.
Status Space::operate(Target& to, const DataOperation& operation, Outstanding* own) {
  return to.route == RouteKind::kCma ? operate_by_cma(to, operation) : operate_over_fabric(to, operation, own);
}

void Space::await_end(const Pending& pending) {
  for (Waiter waiter(process_, wake_event()); !pending.done();) waiter.pause();
}

Status Space::wait_for(Pending& pending) {
  await_end(pending);
  return pending.take_error();
}

std::unique_ptr<Outstanding> Space::own_outstanding(int rank) {
  Target& to = target(rank);
  return to.outstanding == nullptr ? nullptr
                                   : std::make_unique<Outstanding>(static_cast<Outstanding&>(*to.outstanding));
}

void Space::abandon(int rank, std::unique_ptr<Outstanding> own) {
  if (own == nullptr) return;
  const std::scoped_lock held(coalesced_mutex_);
  target(rank).outstanding->abandoned.push_back(std::move(own));
}

Status Space::flush(int rank) {
  Status status = complete(target(rank));
  drain_stores();
  return status;
}

Status Space::flush_all() {
  if (all_immediate_) [[likely]] {
    drain_stores();
    return {};
  }
  Status first;
  // Issues towards all targets before it waits for any.
  for (Target& to : targets_) {
    if (to.outstanding == nullptr) continue;
    Status status = issue_before_flush(to);
    if (!status && first) first = std::move(status);
  }
  for (Target& to : targets_) {
    Status status = complete(to);
    if (!status && first) first = std::move(status);
  }
  drain_stores();
  return first;
}

}  // namespace farside
