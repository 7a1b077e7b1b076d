// SPDX-License-Identifier: BSD-3-Clause
// Operations on the data of mapped targets, and the dispatch to the routes of others.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/space/space.hpp"

namespace farside {

Status Space::put(int rank, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own) {
  NodeTarget* const here = node_.find(rank);
  if (here != nullptr && here->data != nullptr) [[likely]] {
    put_at(*here, here->data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kPut, bytes);
  return operate(rank, here, DataOperation::put(offset, origin, bytes), own);
}

Status Space::put_kept(int rank, std::uint64_t offset, const void* origin, std::size_t bytes, Outstanding* own,
                       CmaRoute::Keep until) {
  NodeTarget* const here = node_.find(rank);
  NodeTargetExtra* const extra = here != nullptr && here->data == nullptr ? node_.extra(*here) : nullptr;
  // In a space that uses the fabric, lists are not posted: a rank that reaches the target over the fabric could not
  // find out whether posted lists are executed.
  if (fabric_ != nullptr) until = CmaRoute::Keep::kUntilFlush;
  if (may_keep_puts_ && extra != nullptr && extra->address != 0 &&
      cma_.keep(*extra, DataOperation::put(offset, origin, bytes), until)) {
    count(rank, Counted::kPut, bytes);
    return {};
  }
  return put(rank, offset, origin, bytes, own);
}

Status Space::get(int rank, std::uint64_t offset, void* origin, std::size_t bytes, Outstanding* own) {
  NodeTarget* const here = node_.find(rank);
  if (here != nullptr && here->data != nullptr) [[likely]] {
    get_at(*here, here->data + offset, origin, bytes);
    return {};
  }
  count(rank, Counted::kGet, bytes);
  return operate(rank, here, DataOperation::get(offset, origin, bytes), own);
}

void Space::put_at_slow(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes) {
  count(target, Counted::kPut, bytes);
  if (!copy_small(at, origin, bytes)) std::memcpy(at, origin, bytes);
  Stores::here().made();
}

void Space::get_at_slow(const NodeTarget& target, const std::byte* at, void* origin, std::size_t bytes) const {
  count(target, Counted::kGet, bytes);
  if (!copy_small(origin, at, bytes)) std::memcpy(origin, at, bytes);
}

void Space::count_slow_row(int rank, Counted what, std::size_t bytes) const {
  if (counts_ == nullptr) return process_.statistics().add(route(rank), what, bytes);
  if (OperationCounts::Row* row = counts_->row(rank)) return counts_->add_here(*row, what, bytes);
  counts_->add(rank, what, bytes);
}

Status Space::accumulate(int rank, std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                         std::size_t elements, Access access, Outstanding* own) {
  NodeTarget* const here = node_.find(rank);
  if (here != nullptr && here->data != nullptr) [[likely]] {
    accumulate_at(*here, here->data + offset, op, type, origin, fetched, elements, access);
    return {};
  }
  count(rank, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp && fetched == nullptr) return {};
  return operate(rank, here, DataOperation::accumulate(offset, op, type, origin, fetched, elements), own);
}

void Space::accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                          void* fetched, std::size_t elements, Access access) {
  const std::size_t extent = traits(type).extent;
  count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  if (access == Access::kAlone) {
    combine(AtomicMethod::kLocked, op, type, at, origin, fetched, elements);
    Stores::here().made();
    return;
  }
  if (rules_.nic(type, at)) [[unlikely]]
    return atomic_by_nic_at(target, at, DataOperation::accumulate(0, op, type, origin, fetched, elements));
  AtomicMethod under_lock = AtomicMethod::kLocked;
  if (rules_.method(type, at) == AtomicMethod::kAtomic) {
    const IntegerPhase by = integers_.begin(elements);
    if (by == IntegerPhase::kAtomics) [[likely]] {
      combine(AtomicMethod::kAtomic, op, type, at, origin, fetched, elements);
      integers_.end(by);
      // Every other operation is a read-modify-write, or stores nothing.
      if (op == ReduceOp::kReplace && fetched == nullptr) Stores::here().made();
      return;
    }
    if (by == IntegerPhase::kBoth) under_lock = AtomicMethod::kAtomic;
  } else {
    count_slow(type, at);
  }
  // In parts, so that no other rank waits long for the lock.
  std::size_t most = elements;
  if (elements * extent > kLockedBytes) [[unlikely]]
    most = kLockedBytes / extent;
  for (std::size_t done = 0; done < elements;) {
    const std::size_t part = std::min(elements - done, most);
    const auto fragment = [&](auto* buffer) { return buffer != nullptr ? buffer + done * extent : nullptr; };
    const AccumulateLock held(accumulate_lock(target));
    combine(under_lock, op, type, at + done * extent, fragment(static_cast<const std::byte*>(origin)),
            fragment(static_cast<std::byte*>(fetched)), part);
    done += part;
  }
  Stores::here().made();
}

void Space::accumulate_rows_at(const NodeTarget& target, std::byte* at, std::ptrdiff_t stride, ReduceOp op,
                               BasicType type, const std::byte* origin, std::byte* fetched,
                               std::ptrdiff_t origin_stride, std::size_t elements, std::size_t rows, Access access) {
  const std::size_t bytes = elements * traits(type).extent;
  const auto go_on = [&](std::size_t by_rows) {
    const auto by = static_cast<std::ptrdiff_t>(by_rows);
    at += by * stride;
    if (origin != nullptr) origin += by * origin_stride;
    if (fetched != nullptr) fetched += by * origin_stride;
  };
  // Rows may differ in their alignment, and so in what combines them.
  if (bytes > kLockedBytes || rules_.may_take_nic(type)) {
    for (; rows > 0; --rows, go_on(1)) accumulate_at(target, at, op, type, origin, fetched, elements, access);
    return;
  }
  count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, bytes * rows);
  const bool alone = access == Access::kAlone;
  const bool by_integers = !alone && rules_.may_take_atomics(type);
  const IntegerPhase by = by_integers ? integers_.begin(elements * rows) : IntegerPhase::kLock;
  const std::size_t at_a_time = kLockedBytes / bytes;
  while (rows > 0) {
    const std::size_t part = std::min(rows, at_a_time);
    std::optional<AccumulateLock> held;
    const auto take_lock = [&] {
      held.emplace(accumulate_lock(target));
      if (rules_.method(type, at) == AtomicMethod::kLocked) count_slow(type, at);
    };
    if (by == IntegerPhase::kLock) {
      if (!alone) take_lock();
      combine_rows(op, type, at, origin, fetched, elements, part, {stride, origin_stride, origin_stride});
      go_on(part);
    } else {
      for (std::size_t row = 0; row < part; ++row, go_on(1)) {
        const AtomicMethod method_here = rules_.method(type, at);
        if (!held && (method_here == AtomicMethod::kLocked || by == IntegerPhase::kBoth)) take_lock();
        combine(method_here, op, type, at, origin, fetched, elements);
      }
    }
    rows -= part;
  }
  integers_.end(by);
  Stores::here().made();
}

void Space::compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                                const void* compare, void* fetched) {
  count(target, Counted::kCompareAndSwap, traits(type).extent);
  if (rules_.nic(type, at)) [[unlikely]]
    return atomic_by_nic_at(target, at, DataOperation::compare_and_swap(0, type, origin, compare, fetched));
  AtomicMethod under_lock = AtomicMethod::kLocked;
  if (rules_.method(type, at) == AtomicMethod::kAtomic) [[likely]] {
    const IntegerPhase by = integers_.begin(1);
    if (by == IntegerPhase::kAtomics) [[likely]] {
      farside::compare_and_swap(AtomicMethod::kAtomic, type, at, origin, compare, fetched);
      integers_.end(by);
      return;
    }
    if (by == IntegerPhase::kBoth) under_lock = AtomicMethod::kAtomic;
  } else {
    count_slow(type, at);
  }
  const AccumulateLock held(accumulate_lock(target));
  farside::compare_and_swap(under_lock, type, at, origin, compare, fetched);
  Stores::here().made();
}

Status Space::compare_and_swap(int rank, std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                               void* fetched) {
  NodeTarget* const here = node_.find(rank);
  if (here != nullptr && here->data != nullptr) [[likely]] {
    compare_and_swap_at(*here, here->data + offset, type, origin, compare, fetched);
    return {};
  }
  count(rank, Counted::kCompareAndSwap, traits(type).extent);
  return operate(rank, here, DataOperation::compare_and_swap(offset, type, origin, compare, fetched), nullptr);
}

void Space::atomic_by_nic_at(const NodeTarget& target, const std::byte* at, DataOperation operation) {
  operation.offset = static_cast<std::uint64_t>(at - target.data);
  // The adapter must see earlier stores of this process.
  Stores::here().drain();
  fabric_->atomic_at(target.rank, operation);
}

}  // namespace farside
