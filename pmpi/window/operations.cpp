// SPDX-License-Identifier: BSD-3-Clause
// Communication calls of a window that are checked: what moves and combines data.
#include "pmpi/window/operations.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/routes/route.hpp"

namespace farside::pmpi {
namespace {

std::byte* bytes_at(const void* address, std::ptrdiff_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(address)) + offset;
}

// The fragments of a buffer with a layout, beside contiguous elements.
ByteFragments beside_packed(const LocalBuffer& buffer, const Datatype& type, BasicType element, std::size_t elements) {
  return {*type.layout, static_cast<std::size_t>(buffer.count), *Layout::basic(element), elements};
}

// Copies between contiguous elements and such a buffer; kOut copies into the buffer.
enum class Direction : std::uint8_t { kIn, kOut };
void copy_elements(Direction direction, std::vector<std::byte>& packed, const LocalBuffer& buffer,
                   ByteFragments fragments) {
  for (ByteFragment fragment; fragments.next(fragment);) {
    std::byte* there = bytes_at(buffer.address, fragment.origin_offset);
    std::byte* here = packed.data() + fragment.target_offset;
    if (direction == Direction::kIn) {
      std::memcpy(here, there, fragment.bytes);
    } else {
      std::memcpy(there, here, fragment.bytes);
    }
  }
}

}  // namespace

// The elements of one predefined type, in an epoch that is open: conditions of check_transfer(), or stricter.
std::optional<Outcome> Operations::transfer_plain(const LocalBuffer& origin, const RemoteBuffer& target, bool put) {
  if (origin.type != target.type || origin.count != target.count) return std::nullopt;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  if (bytes == 0 || window_.space->regions() != nullptr) return std::nullopt;
  if (!window_.epoch.allows_fast(epochs::Call::kOperation, target.rank) && !window_.holds_in_stripe(target.rank))
    return std::nullopt;
  const Result<Space::Extent> extent = window_.space->extent(target.rank);
  if (!extent) return extent.status();
  std::int64_t offset = 0;
  if (__builtin_mul_overflow(std::int64_t{target.displacement}, std::int64_t{extent.value().unit}, &offset))
    return std::nullopt;
  const auto at = static_cast<std::uint64_t>(offset);  // beyond any memory, if the displacement is negative
  if (at > extent.value().bytes || bytes > extent.value().bytes - at) return std::nullopt;
  return move_bytes(origin.address, target, at, bytes, put);
}

Outcome Operations::execute(const CheckedOperation& operation) {
  switch (operation.call) {
    case Counted::kPut:
    case Counted::kGet: return move(operation);
    case Counted::kAccumulate:
    case Counted::kFetch: return combine(operation);
    default: break;
  }
  return window_.space->route(operation.target.rank)
      .compare_and_swap(operation.target.rank, static_cast<std::uint64_t>(operation.at), operation.element,
                        operation.origin.address, operation.compare, operation.result->address);
}

Outcome Operations::move_bytes(void* here, const RemoteBuffer& target, std::uint64_t offset, std::size_t bytes,
                               bool put) {
  if (put && window_.space->may_queue_puts()) {
    const bool until_end = in_active_epoch(target.rank);
    // Threads that put under locks need not share a list.
    if (until_end || (!window_.threaded() && window_.epoch.allows_fast(epochs::Call::kFlush, target.rank))) {
      return window_.space->route(target.rank)
          .queue_put(target.rank, offset, here, bytes, target.own,
                     until_end ? QueuedPuts::Until::kEnd : QueuedPuts::Until::kFlush);
    }
  }
  return put ? window_.space->route(target.rank).put(target.rank, offset, here, bytes, target.own)
             : window_.space->route(target.rank).get(target.rank, offset, here, bytes, target.own);
}

Outcome Operations::move(const CheckedOperation& operation) {
  const auto& [origin, target] = std::tie(operation.origin, operation.target);
  const Datatype &origin_type = *operation.origin_type, &target_type = *operation.target_type;
  const bool put = operation.call == Counted::kPut;
  if (origin_type.contiguous && target_type.contiguous) [[likely]] {
    return move_bytes(origin.address, target, static_cast<std::uint64_t>(operation.at), operation.bytes, put);
  }
  if (std::optional<Outcome> moved = move_ranges(operation)) return std::move(*moved);
  ByteFragments fragments(*origin_type.layout, static_cast<std::size_t>(origin.count), *target_type.layout,
                          static_cast<std::size_t>(target.count));
  ByteFragment fragment;
  if (!fragments.next(fragment)) return {};
  // The estimate of the count assumes fragments of one length, which is the common case.
  Fragments moved(window_.space->route(target.rank), target.rank, target.own, operation.bytes / fragment.bytes);
  Status status;
  do {
    const auto offset = static_cast<std::uint64_t>(operation.at + fragment.target_offset);
    std::byte* local = bytes_at(origin.address, fragment.origin_offset);
    status = put ? moved.put(offset, local, fragment.bytes) : moved.get(offset, local, fragment.bytes);
  } while (status && fragments.next(fragment));
  return first_of(status, moved.end());
}

// Moves data by loops over the shapes of both layouts. If a shape is not simple, returns nullopt and moves nothing.
std::optional<Outcome> Operations::move_ranges(const CheckedOperation& operation) {
  const auto& [origin, target] = std::tie(operation.origin, operation.target);
  const bool put = operation.call == Counted::kPut;
  const std::optional<Ranges> to = operation.target_type->layout->ranges(static_cast<std::size_t>(target.count));
  const std::optional<Ranges> from = operation.origin_type->layout->ranges(static_cast<std::size_t>(origin.count));
  if (!to || !from) return std::nullopt;
  std::byte* const here = bytes_at(origin.address, 0);
  const NodeTarget* const mapped = window_.space->mapped_target(target.rank);
  if (mapped == nullptr) {
    Fragments fragments(window_.space->route(target.rank), target.rank, target.own,
                        std::max(to->count * to->outer, from->count * from->outer));
    Status status;
    const bool fits = for_ranges(*to, *from,
                                 [&](std::ptrdiff_t target_at, std::ptrdiff_t target_stride, std::ptrdiff_t origin_at,
                                     std::ptrdiff_t origin_stride, std::size_t bytes, std::size_t count) {
                                   if (!status) return;
                                   const auto offset = static_cast<std::uint64_t>(operation.at + target_at);
                                   const Blocks blocks{count, target_stride, origin_stride};
                                   status = put ? fragments.put(offset, here + origin_at, bytes, blocks)
                                                : fragments.get(offset, here + origin_at, bytes, blocks);
                                 });
    if (!fits) return std::nullopt;
    return first_of(status, fragments.end());
  }
  std::byte* const there = mapped->data + operation.at;
  const bool moved =
      for_ranges(*to, *from,
                 [&](std::ptrdiff_t target_at, std::ptrdiff_t target_stride, std::ptrdiff_t origin_at,
                     std::ptrdiff_t origin_stride, std::size_t bytes, std::size_t count) {
                   if (put) {
                     copy_ranges(there + target_at, target_stride, here + origin_at, origin_stride, bytes, count);
                   } else {
                     copy_ranges(here + origin_at, origin_stride, there + target_at, target_stride, bytes, count);
                   }
                 });
  if (!moved) return std::nullopt;
  window_.space->mapped_route().moved(target.rank, put ? Counted::kPut : Counted::kGet, to->total());
  return Outcome{};
}

Outcome Operations::combine(const CheckedOperation& operation) {
  const auto& [origin, result, target] = std::tie(operation.origin, operation.result, operation.target);
  const Datatype &origin_type = *operation.origin_type, &result_type = *operation.result_type;
  const BasicType element = operation.element;
  const bool reads_origin = operation.reads_origin;
  const auto target_count = static_cast<std::size_t>(target.count);
  const void* from = reads_origin ? origin.address : nullptr;
  if (operation.target_type->basic && origin_type.basic && result_type.basic) [[likely]] {
    const std::size_t count = reads_origin ? static_cast<std::size_t>(origin.count) : target_count;
    std::vector<std::byte> operands;
    if (result != nullptr && reads_origin && overlap(from, result->address, count * traits(element).extent))
        [[unlikely]] {
      // An error of the program (MPI 4.0 section 12.3.4) that the runtimes do not notice: they have read the operands
      // before they write results. No route needs the operands of an accumulate after the call.
      const auto* const first = static_cast<const std::byte*>(from);
      operands.assign(first, first + span_of(element, count));
      from = operands.data();
    }
    return window_.space->route(target.rank)
        .accumulate(target.rank, static_cast<std::uint64_t>(operation.at), operation.op, element, from,
                    result != nullptr ? result->address : nullptr, count, access(target.rank), target.own);
  }
  if (result == nullptr) {
    return combine_layouts(operation, bytes_at(from, 0), nullptr, *origin_type.layout,
                           static_cast<std::size_t>(origin.count));
  }
  // With three layouts, origin and result go through contiguous copies, which must live until all operations are
  // complete.
  const std::size_t elements = operation.target_type->layout->elements() * target_count;
  std::vector<std::byte> packed(reads_origin ? elements * traits(element).extent : 0);
  std::vector<std::byte> fetched(elements * traits(element).extent);
  if (reads_origin)
    copy_elements(Direction::kIn, packed, origin, beside_packed(origin, origin_type, element, elements));
  // Made before the operation, since it may lack memory.
  ByteFragments into = beside_packed(*result, result_type, element, elements);
  Outcome issued = combine_layouts(operation, reads_origin ? packed.data() : nullptr, fetched.data(),
                                   *Layout::basic(element), elements);
  Outcome completed = first_of(std::move(issued), window_.space->route(target.rank).flush(target.rank));
  if (completed) copy_elements(Direction::kOut, fetched, *result, std::move(into));
  return completed;
}

// Combines `count` elements of a layout at `origin` with the target's. Fetched elements have the same layout. With a
// fetch, a null `origin` means that nothing is sent; without one it is MPI_BOTTOM.
Outcome Operations::combine_layouts(const CheckedOperation& operation, const std::byte* origin, std::byte* fetched,
                                    const Layout& layout, std::size_t count) {
  const RemoteBuffer& target = operation.target;
  if (std::optional<Outcome> combined = combine_ranges(operation, origin, fetched, layout.ranges(count)))
    return std::move(*combined);
  ElementFragments fragments(layout, count, *operation.target_type->layout, static_cast<std::size_t>(target.count));
  ElementFragment fragment;
  if (!fragments.next(fragment)) return {};
  const bool sends = origin != nullptr || fetched == nullptr;
  // The caller flushes after a fetch, so the request needs no counters of its own.
  Fragments combined(window_.space->route(target.rank), target.rank, fetched == nullptr ? target.own : nullptr,
                     layout.elements() * count / fragment.count);
  Status status;
  do {
    status = combined.accumulate(static_cast<std::uint64_t>(operation.at + fragment.target_offset), operation.op,
                                 operation.element, sends ? bytes_at(origin, fragment.origin_offset) : nullptr,
                                 fetched != nullptr ? fetched + fragment.origin_offset : nullptr, fragment.count,
                                 access(target.rank));
  } while (status && fragments.next(fragment));
  return first_of(status, combined.end());
}

// The same like move_ranges, for types without gaps.
std::optional<Outcome> Operations::combine_ranges(const CheckedOperation& operation, const std::byte* origin,
                                                  std::byte* fetched, const std::optional<Ranges>& from) {
  const RemoteBuffer& target = operation.target;
  const ReduceOp op = operation.op;
  const BasicType element = operation.element;
  if (has_gap(element)) return std::nullopt;
  const std::optional<Ranges> to = operation.target_type->layout->ranges(static_cast<std::size_t>(target.count));
  if (!to || !from) return std::nullopt;
  const bool sends = origin != nullptr || fetched == nullptr;
  const NodeTarget* const there = window_.space->mapped_target(target.rank);
  std::optional<Fragments> fragments;
  if (there == nullptr) {
    Outstanding* const own = fetched == nullptr ? target.own : nullptr;
    fragments.emplace(window_.space->route(target.rank), target.rank, own,
                      std::max(to->count * to->outer, from->count * from->outer));
  }
  Status status;
  const bool fits = for_ranges(
      *to, *from,
      [&](std::ptrdiff_t target_at, std::ptrdiff_t target_stride, std::ptrdiff_t origin_at,
          std::ptrdiff_t origin_stride, std::size_t bytes, std::size_t count) {
        const std::byte* const sent = sends ? bytes_at(origin, origin_at) : nullptr;
        std::byte* const back = fetched != nullptr ? fetched + origin_at : nullptr;
        const std::size_t elements = bytes / traits(element).size;
        if (!fragments) {
          window_.space->mapped_route().accumulate_rows_at(*there, there->data + operation.at + target_at,
                                                           target_stride, op, element, sent, back, origin_stride,
                                                           elements, count, access(target.rank));
        } else if (status) {
          status = fragments->accumulate(static_cast<std::uint64_t>(operation.at + target_at), op, element, sent, back,
                                         elements, access(target.rank), {count, target_stride, origin_stride});
        }
      });
  if (!fits) return std::nullopt;
  return fragments ? first_of(status, fragments->end()) : Outcome{};
}

}  // namespace farside::pmpi
