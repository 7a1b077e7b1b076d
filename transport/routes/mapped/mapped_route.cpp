// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/mapped/mapped_route.hpp"

#include <bit>

#include "transport/data/layout.hpp"

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
  adapter_(target.rank, operation);
}

void MappedRoute::combine_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type, const void* origin,
                             void* fetched, std::size_t elements, Access access, const void* compare) {
  const std::size_t extent = traits(type).extent;
  const auto update = [&](AtomicMethod method, std::byte* to, const void* from, void* back, std::size_t count) {
    if (compare != nullptr) return farside::compare_and_swap(method, type, to, from, compare, back);
    combine(method, op, type, to, from, back, count);
  };
  if (access == Access::kAlone) {
    combine(AtomicMethod::kLocked, op, type, at, origin, fetched, elements);
    this_thread.stores.made();
    return;
  }
  if (rules_.nic(type, at)) [[unlikely]]
    return atomic_by_nic_at(target, at,
                            compare != nullptr ? DataOperation::compare_and_swap(0, type, origin, compare, fetched)
                                               : DataOperation::accumulate(0, op, type, origin, fetched, elements));
  AtomicMethod under_lock = AtomicMethod::kLocked;
  if (rules_.method(type, at) == AtomicMethod::kAtomic) {
    const IntegerPhase by = integers_.begin(elements);
    if (by == IntegerPhase::kAtomics) [[likely]] {
      update(AtomicMethod::kAtomic, at, origin, fetched, elements);
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
    update(under_lock, at + done * extent, fragment(static_cast<const std::byte*>(origin)),
           fragment(static_cast<std::byte*>(fetched)), part);
    done += part;
  }
  this_thread.stores.made();
}

void MappedRoute::accumulate_at(const NodeTarget& target, std::byte* at, ReduceOp op, BasicType type,
                                const void* origin, void* fetched, std::size_t elements, Access access) {
  count(target, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, elements * traits(type).extent);
  if (op == ReduceOp::kNoOp) {
    if (fetched == nullptr) return;
    origin = nullptr;
  }
  combine_at(target, at, op, type, origin, fetched, elements, access, nullptr);
}

void MappedRoute::compare_and_swap_at(const NodeTarget& target, std::byte* at, BasicType type, const void* origin,
                                      const void* compare, void* fetched) {
  count(target, Counted::kCompareAndSwap, traits(type).extent);
  combine_at(target, at, ReduceOp::kReplace, type, origin, fetched, 1, Access::kShared, compare);
}

Status MappedRoute::operate(int rank, const DataOperation& operation, Pending* /*own*/) {
  const NodeTarget& target = *node_.find(rank);
  std::byte* const at = target.data + operation.offset;
  const auto* const from = static_cast<const std::byte*>(operation.origin);
  auto* const to = static_cast<std::byte*>(operation.fetched);
  switch (operation.kind) {
    case OperationKind::kPut:
      copy_ranges(at, operation.stride, from, operation.origin_stride, operation.count, operation.blocks);
      this_thread.stores.made();
      break;
    case OperationKind::kGet:
      copy_ranges(to, operation.origin_stride, at, operation.stride, operation.count, operation.blocks);
      break;
    case OperationKind::kAccumulate:
    case OperationKind::kCompareAndSwap:
      if (operation.blocks > 1) {
        combine_blocks(target, operation);
      } else {
        combine_at(target, at, operation.op, operation.type, from, to, operation.count, operation.access,
                   operation.compare);
      }
      break;
  }
  return {};
}

void MappedRoute::combine_blocks(const NodeTarget& target, DataOperation rest) {
  const BasicType type = rest.type;
  const std::size_t bytes = rest.bytes();
  const auto at = [&] { return target.data + rest.offset; };
  // Blocks may differ in their alignment, and so in what combines them.
  if (bytes > kLockedBytes || rules_.may_take_nic(type)) {
    for (; rest.blocks > 0; rest = rest.behind(1))
      combine_at(target, at(), rest.op, type, rest.origin, rest.fetched, rest.count, rest.access, nullptr);
    return;
  }
  const bool alone = rest.access == Access::kAlone;
  const bool by_integers = !alone && rules_.may_take_atomics(type);
  const IntegerPhase by = by_integers ? integers_.begin(rest.count * rest.blocks) : IntegerPhase::kLock;
  while (rest.blocks > 0) {
    const std::size_t part = std::min(rest.blocks, kLockedBytes / bytes);
    std::optional<AccumulateLock> held;
    const auto take_lock = [&] {
      held.emplace(accumulate_lock(target));
      if (rules_.method(type, at()) == AtomicMethod::kLocked) rules_.count_slow(counts_, type, at(), false);
    };
    if (by == IntegerPhase::kLock) {
      if (!alone) take_lock();
      combine_rows(rest.op, type, at(), static_cast<const std::byte*>(rest.origin),
                   static_cast<std::byte*>(rest.fetched), rest.count, part,
                   {rest.stride, rest.origin_stride, rest.origin_stride});
      rest = rest.behind(part);
    } else {
      for (std::size_t block = 0; block < part; ++block, rest = rest.behind(1)) {
        const AtomicMethod method = rules_.method(type, at());
        if (!held && (method == AtomicMethod::kLocked || by == IntegerPhase::kBoth)) take_lock();
        combine(method, rest.op, type, at(), rest.origin, rest.fetched, rest.count);
      }
    }
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
