// SPDX-License-Identifier: BSD-3-Clause
#include "transport/pieces.hpp"

#include <utility>

#include "transport/agent/node_agent.hpp"
#include "transport/node/process_memory.hpp"

namespace farside {
namespace {

// So many are moved faster without the neighbour's agent: a letter wakes its thread, which takes 10 to 20 us. Moved by a system call
// each (2 us), combined by two each, put by one for all (2 us, and 0.4 for each).
constexpr std::size_t kFewToMove = 8;
constexpr std::size_t kFewToCombine = 3;
constexpr std::size_t kFewForOneCall = 24;
constexpr std::size_t kFewForFabric = 1;

// Calls work(i) for each of the blocks, while all goes well.
template <class Work>
Status for_each(const Blocks& blocks, Work&& work) {
  Status status;
  for (std::size_t block = 0; status && block < blocks.count; ++block) status = work(static_cast<std::ptrdiff_t>(block));
  return status;
}

}  // namespace

Space::Pieces::Pieces(Space& space, int rank, Outstanding* own, std::size_t about)
    : space_(space), rank_(rank), own_(own), about_(about) {}

bool Space::Pieces::in_lists(std::size_t few_for_process_memory) const {
  const Target& to = space_.target(rank_);
  if (to.agent != nullptr) return about_ > (to.agent->is_watching() ? 1 : few_for_process_memory);
  return to.outstanding != nullptr && about_ > kFewForFabric && !space_.by_origin_;
}

Status Space::Pieces::put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks) {
  const Target& to = space_.target(rank_);
  const bool dense = blocks.stride == static_cast<std::ptrdiff_t>(bytes);
  if (to.route == RouteKind::kCma && blocks.count > 1 && (dense || !in_lists(kFewForOneCall))) {
    space_.count(rank_, Counted::kPut, bytes * blocks.count);
    return write_process_memory(to.pid, to.address + offset, blocks.stride, static_cast<const std::byte*>(origin), blocks.origin_stride,
                                bytes, blocks.count);
  }
  if (in_lists(kFewToMove)) {
    space_.count(rank_, Counted::kPut, bytes * blocks.count);
    return add(DataOperation::put(offset, origin, bytes), blocks);
  }
  return for_each(blocks, [&](std::ptrdiff_t block) {
    return space_.put(rank_, offset + static_cast<std::uint64_t>(block * blocks.stride),
                      static_cast<const std::byte*>(origin) + block * blocks.origin_stride, bytes, own_);
  });
}

Status Space::Pieces::get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks) {
  const Target& from = space_.target(rank_);
  // Attached memory may have holes.
  if (from.route == RouteKind::kCma && space_.regions_ == nullptr && pays_to_read_stretches(bytes, blocks.count, blocks.stride)) {
    const Status read = read_process_memory(from.pid, from.address + offset, blocks.stride, static_cast<std::byte*>(origin),
                                            blocks.origin_stride, bytes, blocks.count);
    if (read) {
      space_.count(rank_, Counted::kGet, bytes * blocks.count);
      return {};
    }
    // There may be nothing between them.
  }
  if (in_lists(kFewToMove)) {
    space_.count(rank_, Counted::kGet, bytes * blocks.count);
    return add(DataOperation::get(offset, origin, bytes), blocks);
  }
  return for_each(blocks, [&](std::ptrdiff_t block) {
    return space_.get(rank_, offset + static_cast<std::uint64_t>(block * blocks.stride),
                      static_cast<std::byte*>(origin) + block * blocks.origin_stride, bytes, own_);
  });
}

Status Space::Pieces::accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                                 std::size_t count, Access access, const Blocks& blocks) {
  if (in_lists(kFewToCombine)) {
    space_.count(rank_, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate, count * traits(type).extent * blocks.count);
    return add(DataOperation::accumulate(offset, op, type, origin, fetched, count), blocks);
  }
  return for_each(blocks, [&](std::ptrdiff_t block) {
    const std::ptrdiff_t on = block * blocks.origin_stride;
    return space_.accumulate(rank_, offset + static_cast<std::uint64_t>(block * blocks.stride), op, type,
                             op != ReduceOp::kNoOp ? static_cast<const std::byte*>(origin) + on : nullptr,
                             fetched != nullptr ? static_cast<std::byte*>(fetched) + on : nullptr, count, access, own_);
  });
}

Status Space::Pieces::add(const DataOperation& operation, const Blocks& blocks) {
  Target& to = space_.target(rank_);
  if (operation.bytes() > kMostGathered || (operation.atomic() && space_.control_by_nic_)) {
    return for_each(blocks, [&](std::ptrdiff_t block) {
      const DataOperation one = blocks.on(operation, static_cast<std::size_t>(block));
      const bool alone = one.bytes() > kMostGathered || space_.by_nic(one.type, Space::place_of(to, one.offset));
      if (!alone) return add_to_list(one, {});
      if (Status status = issue(); !status) return status;
      return space_.operate(to, one, own_);
    });
  }
  return add_to_list(operation, blocks);
}

Status Space::Pieces::add_to_list(DataOperation operation, Blocks blocks) {
  while (true) {
    if (list_ == nullptr) list_ = std::make_unique<OperationList>();
    const std::size_t added = list_->add(operation, blocks);
    if (added == blocks.count) return {};
    operation = blocks.on(operation, added);
    blocks.count -= added;
    if (Status status = issue(); !status) return status;
  }
}

Status Space::Pieces::issue() {
  if (list_ == nullptr) return {};
  Target& to = space_.target(rank_);
  if (to.agent == nullptr) return space_.send_behind_gathered(to, own_, std::move(list_));
  full_.push_back(std::move(list_));
  return full_.size() < Mailbox::kSlots ? Status() : carry_out_full();
}

// Ahead of an operation of its own they need not be: none meets another.
Status Space::Pieces::carry_out_full() {
  if (full_.empty()) return {};
  const std::vector<std::unique_ptr<OperationList>> lists = std::exchange(full_, {});
  return space_.target(rank_).agent->carry_out(space_.process_, static_cast<std::uint32_t>(space_.rank_), lists);
}

Status Space::Pieces::end() {
  if (list_ == nullptr) return carry_out_full();
  if (space_.target(rank_).agent == nullptr && own_ == nullptr) return space_.keep_gathered(space_.target(rank_), std::move(list_));
  Status status = issue();
  Status rest = carry_out_full();
  return status ? std::move(rest) : std::move(status);
}

}  // namespace farside
