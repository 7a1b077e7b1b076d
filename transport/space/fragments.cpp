// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/fragments.hpp"

#include <memory>
#include <utility>

#include "transport/data/layout.hpp"
#include "transport/handler/node_handler.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/routes/target_order.hpp"

namespace farside {
namespace {

// Up to these numbers of fragments, cma is faster without the on-node peer's handler, whose thread takes 10 to 20 us
// to wake. cma needs one system call (2 us) to move a fragment, two to combine one, and one for all blocks of a put
// (kFewForOneCall).
constexpr std::size_t kFewToMove = 8;
constexpr std::size_t kFewToCombine = 3;
constexpr std::size_t kFewForFabric = 1;

// Calls work(i) for each of the blocks, until one fails.
template <class Work>
Status for_each(const Blocks& blocks, Work&& work) {
  Status status;
  for (std::size_t block = 0; status && block < blocks.count; ++block)
    status = work(static_cast<std::ptrdiff_t>(block));
  return status;
}

bool is_dense(std::size_t bytes, const Blocks& blocks) { return blocks.stride == static_cast<std::ptrdiff_t>(bytes); }

}  // namespace

Space::Fragments::Fragments(Space& space, int rank, Outstanding* own, std::size_t expected)
    : space_(space),
      rank_(rank),
      here_(space.node_.find(rank)),
      extra_(here_ != nullptr ? space.node_.extra(*here_) : nullptr),
      handler_(extra_ != nullptr ? extra_->handler.get() : nullptr),
      own_(own),
      expected_(expected) {
  if (!by_cma()) return;
  if (Status before = space.cma_.before_access(*extra_); !before) space.cma_.report_later(std::move(before));
}

// A thread that polls moves a message in 1 to 4 us. The best system call takes 2.5 us, and more for each page.
bool Space::Fragments::handler_polls() const { return handler_ != nullptr && handler_->is_polling(); }

bool Space::Fragments::in_lists(std::size_t few_for_process_memory) const {
  if (handler_ != nullptr) return expected_ > (handler_polls() ? 1 : few_for_process_memory);
  return !space_.immediate(rank_) && expected_ > kFewForFabric;
}

// Returns whether the blocks, which have no gaps at the target, move through a buffer as one range, by messages to a
// handler that polls. A small range among other fragments travels in a list with them. Blocks in attached memory may be
// in several regions.
bool Space::Fragments::as_one(std::size_t bytes, const Blocks& blocks) const {
  const std::size_t all = bytes * blocks.count;
  const bool alone = blocks.count >= expected_ || all > kMostCoalesced;
  return by_cma() && blocks.count > 1 && is_dense(bytes, blocks) && alone && all <= kMostByMessage &&
         space_.regions_ == nullptr && handler_polls();
}

Status Space::Fragments::put(std::uint64_t offset, const void* origin, std::size_t bytes, const Blocks& blocks) {
  const std::size_t all = bytes * blocks.count;
  if (as_one(bytes, blocks)) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(all);
    copy_ranges(buffer.get(), blocks.stride, static_cast<const std::byte*>(origin), blocks.origin_stride, bytes,
                blocks.count);
    return space_.put(rank_, offset, buffer.get(), all, own_);
  }
  const auto by_one_call = [&] {
    return is_dense(bytes, blocks) ? all > kMostCoalesced || !handler_polls() : !in_lists(kFewForOneCall);
  };
  if (by_cma() && blocks.count > 1 && by_one_call()) {
    Status written =
        write_process_memory(extra_->pid, extra_->address + offset, blocks.stride,
                             static_cast<const std::byte*>(origin), blocks.origin_stride, bytes, blocks.count);
    if (written || written.error().kind != ErrorKind::kNoRoute) {
      space_.count(rank_, Counted::kPut, all);
      return written;
    }
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

Status Space::Fragments::get(std::uint64_t offset, void* origin, std::size_t bytes, const Blocks& blocks) {
  const std::size_t all = bytes * blocks.count;
  if (as_one(bytes, blocks)) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(all);
    Status read = space_.get(rank_, offset, buffer.get(), all, own_);
    if (read) {
      copy_ranges(static_cast<std::byte*>(origin), blocks.origin_stride, buffer.get(), blocks.stride, bytes,
                  blocks.count);
    }
    return read;
  }
  // A handler that polls is slower only with a large range without gaps. Attached memory may have holes between blocks.
  const auto by_reading = [&] {
    return is_reading_gaps_faster(bytes, blocks.count, blocks.stride) &&
           ((is_dense(bytes, blocks) && all > kMostByMessage) || !handler_polls());
  };
  if (by_cma() && space_.regions_ == nullptr && by_reading()) {
    const Status read = read_process_memory(extra_->pid, extra_->address + offset, blocks.stride,
                                            static_cast<std::byte*>(origin), blocks.origin_stride, bytes, blocks.count);
    if (read) {
      space_.count(rank_, Counted::kGet, all);
      return {};
    }
    // The memory between the blocks may not be mapped at the target.
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

Status Space::Fragments::accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin,
                                    void* fetched, std::size_t count, Access access, const Blocks& blocks) {
  if (in_lists(kFewToCombine)) {
    space_.count(rank_, fetched != nullptr ? Counted::kFetch : Counted::kAccumulate,
                 count * traits(type).extent * blocks.count);
    return add(DataOperation::accumulate(offset, op, type, origin, fetched, count), blocks);
  }
  return for_each(blocks, [&](std::ptrdiff_t block) {
    const std::ptrdiff_t on = block * blocks.origin_stride;
    return space_.accumulate(rank_, offset + static_cast<std::uint64_t>(block * blocks.stride), op, type,
                             op != ReduceOp::kNoOp ? static_cast<const std::byte*>(origin) + on : nullptr,
                             fetched != nullptr ? static_cast<std::byte*>(fetched) + on : nullptr, count, access, own_);
  });
}

Status Space::Fragments::add(const DataOperation& operation, const Blocks& blocks) {
  if (operation.bytes() > kMostCoalesced || (operation.atomic() && space_.rules_.integers_by_nic)) {
    return for_each(blocks, [&](std::ptrdiff_t block) {
      const DataOperation one = blocks.on(operation, static_cast<std::size_t>(block));
      bool alone = one.bytes() > kMostCoalesced;
      // (The handler of a target, also of an on-node peer that only the fabric reaches, combines by the CPU.)
      if (!alone && !by_cma()) {
        Result<bool> by_nic = space_.fabric_->by_nic(rank_, one);
        if (!by_nic) return Status(by_nic.error());
        alone = by_nic.value();
      }
      if (!alone) return add_to_list(one, {});
      if (Status status = issue(); !status) return status;
      return space_.operate(rank_, here_, one, own_);
    });
  }
  return add_to_list(operation, blocks);
}

Status Space::Fragments::add_to_list(DataOperation operation, Blocks blocks) {
  while (true) {
    if (list_ == nullptr) list_ = patiently([] { return OperationList::take_spare(); });
    const std::size_t added = patiently([&] { return list_->add(operation, blocks); });
    if (added == blocks.count) return {};
    operation = blocks.on(operation, added);
    blocks.count -= added;
    if (Status status = issue(); !status) return status;
  }
}

Status Space::Fragments::issue() {
  if (list_ == nullptr) return {};
  if (handler_ == nullptr) return space_.fabric_->send_behind_kept(rank_, own_, std::move(list_));
  patiently([&] { full_.push_back(std::move(list_)); });
  return full_.size() < MessageQueue::kSlots ? Status() : execute_full();
}

// No order between fragments is needed, since they do not overlap.
Status Space::Fragments::execute_full() {
  if (full_.empty()) return {};
  std::vector<std::unique_ptr<OperationList>> lists = std::exchange(full_, {});
  Status executed = space_.cma_.execute(*extra_, lists);
  OperationList::keep_spare(std::move(lists.front()));
  return executed;
}

Status Space::Fragments::end() {
  if (list_ == nullptr) return execute_full();
  if (handler_ == nullptr && own_ == nullptr) return space_.fabric_->keep(rank_, std::move(list_));
  Status status = issue();
  Status rest = execute_full();
  return status ? std::move(rest) : std::move(status);
}

}  // namespace farside
