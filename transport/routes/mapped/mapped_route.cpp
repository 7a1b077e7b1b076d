// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/mapped/mapped_route.hpp"

#include <bit>
#include <optional>

namespace farside {
namespace {

AccumulateLockWord& accumulate_lock(const NodeTarget& target) {
  return ControlHeader::of(target.control).accumulate_lock;
}

}  // namespace

void MappedRoute::put_at_slow(const NodeTarget& target, std::byte* at, const void* origin, std::size_t bytes) {
  count(target, Counted::kPut, bytes);
  if (!copy_small(at, origin, bytes)) std::memcpy(at, origin, bytes);
  this_thread.stores.made();
}

void MappedRoute::get_at_slow(const NodeTarget& target, const std::byte* at, void* origin, std::size_t bytes) const {
  count(target, Counted::kGet, bytes);
  if (!copy_small(origin, at, bytes)) std::memcpy(origin, at, bytes);
}

void MappedRoute::atomic_by_nic_at(const NodeTarget& target, const std::byte* at, DataOperation operation) {
  operation.offset = static_cast<std::uint64_t>(at - target.data);
  // The adapter must see earlier stores of this process.
  this_thread.stores.drain();
  adapter_->atomic_at(target.rank, operation);
}

void MappedRoute::combine_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                             void* fetched, std::size_t elements, Access access) {
  const std::size_t extent = traits(type).extent;
  if (access == Access::kAlone) {
    combine(AtomicMethod::kLocked, op, type, at, origin, fetched, elements);
    this_thread.stores.made();
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
      if (op == ReduceOp::kReplace && fetched == nullptr) this_thread.stores.made();
      return;
    }
    if (by == IntegerPhase::kBoth) under_lock = AtomicMethod::kAtomic;
  } else {
    rules_.count_slow(counts_, type, at, false);
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
  this_thread.stores.made();
}

void MappedRoute::swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                          const void* compare, void* fetched) {
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
    rules_.count_slow(counts_, type, at, false);
  }
  const AccumulateLock held(accumulate_lock(target));
  farside::compare_and_swap(under_lock, type, at, origin, compare, fetched);
  this_thread.stores.made();
}

void MappedRoute::accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                const void* origin, void* fetched, std::size_t elements, Access access) {
  count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  combine_at(target, at, op, type, origin, fetched, elements, access);
}

void MappedRoute::compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                                      const void* compare, void* fetched) {
  count(target, Counted::kCompareAndSwap, traits(type).extent);
  swap_at(target, at, type, origin, compare, fetched);
}

Status MappedRoute::operate(int rank, const DataOperation& operation, Outstanding* /*own*/) {
  const NodeTarget& target = *node_.find(rank);
  std::byte* const at = target.data + operation.offset;
  switch (operation.kind) {
    case OperationKind::kPut:
      if (!copy_small(at, operation.origin, operation.count)) std::memcpy(at, operation.origin, operation.count);
      this_thread.stores.made();
      break;
    case OperationKind::kGet:
      if (!copy_small(operation.fetched, at, operation.count)) std::memcpy(operation.fetched, at, operation.count);
      break;
    case OperationKind::kAccumulate:
      combine_at(target, at, operation.op, operation.type, operation.origin, operation.fetched, operation.count,
                 operation.access);
      break;
    case OperationKind::kCompareAndSwap:
      swap_at(target, at, operation.type, operation.origin, operation.compare, operation.fetched);
      break;
  }
  return {};
}

void MappedRoute::accumulate_rows_at(const NodeTarget& target, std::byte* at, std::ptrdiff_t stride, ReduceOp op,
                                     BasicType type, const std::byte* origin, std::byte* fetched,
                                     std::ptrdiff_t origin_stride, std::size_t elements, std::size_t rows,
                                     Access access) {
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
      if (rules_.method(type, at) == AtomicMethod::kLocked) rules_.count_slow(counts_, type, at, false);
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
  this_thread.stores.made();
}

void MappedRoute::expect_threads() {
  integers_.expect_threads();
  for (NodeTarget& target : node_.all()) {
    if (NodeTargetExtra* const extra = node_.extra(target)) extra->counts = nullptr;
  }
}

void NodeTargets::assign(std::span<const int> ranks) {
  targets_.resize(ranks.size());
  begin_ = targets_.data();
  first_ = static_cast<std::uint32_t>(ranks.front());
  const std::uint32_t distance = ranks.size() > 1 ? static_cast<std::uint32_t>(ranks[1]) - first_ : 1;
  bool regular = std::has_single_bit(distance);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    targets_[i].rank = ranks[i];
    regular = regular && static_cast<std::uint64_t>(ranks[i]) == first_ + std::uint64_t{i} * distance;
  }
  if (!regular) return;
  shift_ = static_cast<std::uint32_t>(std::countr_zero(distance));
  regular_ = static_cast<std::uint32_t>(targets_.size());
}

const NodeTarget* NodeTargets::find_irregular(int rank) const {
  const auto found = std::ranges::lower_bound(targets_, rank, {}, &NodeTarget::rank);
  return found != targets_.end() && found->rank == rank ? &*found : nullptr;
}

NodeTargetExtra& NodeTargets::make_extra(const NodeTarget& target) {
  if (extra_ == nullptr) extra_ = std::make_unique<std::unique_ptr<NodeTargetExtra>[]>(targets_.size());
  std::unique_ptr<NodeTargetExtra>& extra = extra_[index_of(target)];
  if (extra == nullptr) {
    extra = std::make_unique<NodeTargetExtra>();
    extra->rank = target.rank;
  }
  return *extra;
}

}  // namespace farside
