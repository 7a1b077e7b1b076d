// SPDX-License-Identifier: BSD-3-Clause
// Communication calls of a window (MPI 4.0 section 12.3).
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "pmpi/datatypes/reduce_op.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/integers.hpp"
#include "transport/node/device_memory.hpp"
#include "transport/space/fragments.hpp"

namespace farside::pmpi {
namespace {

// Displacement arithmetic in 128 bits cannot overflow.
__extension__ using Wide = __int128;

Outcome check_count(std::int64_t count, const char* whose) {
  if (count >= 0) return {};
  return Fault{MPI_ERR_COUNT,
               fmt::format("the {} count is {}; it may not be negative (MPI 4.0 section 12.3)", whose, count)};
}

// Computes the bytes of data in a buffer. More than 2^63 - 1 bytes fit into no address space.
Outcome count_bytes(std::int64_t count, const Datatype& type, const char* whose, std::size_t& bytes) {
  if (const auto known = bytes_of(static_cast<std::size_t>(count), type.size)) [[likely]] {
    bytes = *known;
    return {};
  }
  return Fault{MPI_ERR_COUNT,
               fmt::format("the {} count is {}, of a datatype of {} bytes; together they may be 2^63 - 1 bytes at most "
                           "(MPI 4.0 section 12.3)",
                           whose, count, type.size)};
}

Outcome find_type(MPI_Datatype handle, const char* whose, const Datatype*& type) {
  type = find_datatype(handle);
  if (type != nullptr) [[likely]]
    return {};
  return Fault{MPI_ERR_TYPE, fmt::format("{} datatype: {} (MPI 4.0 section 12.3)", whose, datatype_error(handle).text)};
}

Outcome check_displacement(MPI_Aint displacement) {
  if (displacement >= 0) [[likely]]
    return {};
  return Fault{
      MPI_ERR_DISP,
      fmt::format("the target displacement is {}; it may not be negative (MPI 4.0 section 12.3.1)", displacement)};
}

// A null address is MPI_BOTTOM, which is valid only for a type of absolute addresses.
Outcome check_buffer(const void* address, const Datatype& type, std::size_t bytes, const char* whose) {
  if (address != nullptr || bytes == 0 || !type.contiguous) [[likely]]
    return {};
  return Fault{MPI_ERR_BUFFER,
               fmt::format("the {} buffer is null, for {} bytes; give it memory (MPI 4.0 section 12.3)", whose, bytes)};
}

// MPI 4.0 section 12.3.1: the data must fit without truncation, as in send and receive.
Outcome check_fits(std::size_t sent_bytes, std::size_t room_bytes) {
  if (sent_bytes <= room_bytes) [[likely]]
    return {};
  return Fault{MPI_ERR_TRUNCATE,
               fmt::format("{} bytes are sent where count and datatype leave room for {}; origin and target must match "
                           "(MPI 4.0 section 12.3.1)",
                           sent_bytes, room_bytes)};
}

// fmt 9 does not print 128 bits everywhere, so values beyond 64 bits are printed as a bound.
std::string in_digits(Wide value) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  if (value > kMost) return fmt::format("more than {}", kMost);
  if (value < -kMost) return fmt::format("less than -{}", kMost);
  return fmt::format("{}", static_cast<std::int64_t>(value));
}

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

Outcome Window::check_operation(int rank, bool updates) {
  if (holds_in_stripe(rank)) return {};
  const auto held = guard();
  return epoch_.operation(rank, updates);
}

Outcome Window::locate(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const {
  if (Outcome o = check_displacement(target.displacement); !o) return o;
  if (space_->regions() != nullptr) [[unlikely]]
    return locate_attached(target, type, origin_at);
  const Result<Space::Extent> extent = space_->extent(target.rank);
  if (!extent) return extent.status();
  const std::uint64_t bytes = extent.value().bytes;
  const Wide at = static_cast<Wide>(target.displacement) * extent.value().unit;
  const Wide stretch = static_cast<Wide>(target.count - 1) * type.layout->extent();
  const Wide first = at + type.layout->true_lower_bound() + std::min<Wide>(stretch, 0);
  const Wide last = at + type.layout->true_upper_bound() + std::max<Wide>(stretch, 0);
  if (first >= 0 && last <= static_cast<Wide>(bytes)) [[likely]] {
    origin_at = static_cast<std::int64_t>(at);
    return {};
  }
  return Fault{
      MPI_ERR_RMA_RANGE,
      fmt::format("displacement {} (unit {}) and count {} reach from byte {} to {}, beyond the {} bytes of rank "
                  "{}'s window; access only what lies within it (MPI 4.0 section 12.3.1)",
                  target.displacement, extent.value().unit, target.count, in_digits(first), in_digits(last), bytes,
                  target.rank)};
}

// The elements of one predefined type, in an epoch that is open: conditions of transfer(), or stricter ones.
std::optional<Outcome> Window::transfer_plain(const LocalBuffer& origin, const RemoteBuffer& target, bool put) {
  if (origin.type != target.type || origin.count != target.count || origin.address == nullptr) return std::nullopt;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  if (bytes == 0 || strict_ != nullptr || space_->regions() != nullptr) return std::nullopt;
  if (!epoch_.allows_fast_operation(target.rank) && !holds_in_stripe(target.rank)) return std::nullopt;
  const Result<Space::Extent> extent = space_->extent(target.rank);
  if (!extent) return extent.status();
  std::int64_t offset = 0;
  if (__builtin_mul_overflow(std::int64_t{target.displacement}, std::int64_t{extent.value().unit}, &offset))
    return std::nullopt;
  const auto at = static_cast<std::uint64_t>(offset);  // beyond any memory, if the displacement is negative
  if (at > extent.value().bytes || bytes > extent.value().bytes - at) return std::nullopt;
  return operated(target.rank, put ? Counted::kPut : Counted::kGet, bytes,
                  [&] { return move_bytes(origin.address, target, at, bytes, put); });
}

Outcome Window::transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put) {
  if (DeviceMemory::possible()) [[unlikely]] {
    if (std::optional<Outcome> staged = stage_transfer(origin, target, put)) return std::move(*staged);
  }
  if (std::optional<Outcome> done = transfer_plain(origin, target, put)) return std::move(*done);
  if (Outcome o = check_count(origin.count, "origin"); !o) return o;
  if (Outcome o = check_count(target.count, "target"); !o) return o;
  if (target.rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(target.rank); !o) return o;
  const Datatype* origin_type = nullptr;
  if (Outcome o = find_type(origin.type, "origin", origin_type); !o) return o;
  const Datatype* target_type = origin_type;
  if (target.type != origin.type) {
    if (Outcome o = find_type(target.type, "target", target_type); !o) return o;
  }
  std::size_t origin_bytes = 0, target_bytes = 0;
  if (Outcome o = count_bytes(origin.count, *origin_type, "origin", origin_bytes); !o) return o;
  if (Outcome o = count_bytes(target.count, *target_type, "target", target_bytes); !o) return o;
  const std::size_t bytes = put ? origin_bytes : target_bytes;
  if (Outcome o = check_fits(bytes, put ? target_bytes : origin_bytes); !o) return o;
  std::int64_t at = 0;
  if (target_bytes > 0) {
    if (Outcome o = locate(target, *target_type, at); !o) return o;
  } else if (Outcome o = check_displacement(target.displacement); !o) {
    return o;
  }
  if (Outcome o = check_buffer(origin.address, *origin_type, bytes, "origin"); !o) return o;
  if (Outcome o = check_operation(target.rank, put); !o) return o;
  if (bytes == 0) return {};
  const Counted what = put ? Counted::kPut : Counted::kGet;
  if (strict_ == nullptr) [[likely]] {
    return operated(target.rank, what, bytes,
                    [&] { return move(origin, *origin_type, target, *target_type, at, put); });
  }
  const Strict::Side here{origin.address, origin.count, origin_type};
  return watched({put ? Strict::Call::kPut : Strict::Call::kGet,
                  put ? epochs::Use::kPut : epochs::Use::kGet,
                  BasicType::kByte,
                  {},
                  put ? &here : nullptr,
                  put ? nullptr : &here,
                  {target.rank, at, target.count, target_type},
                  target.watched},
                 [&] { return move(origin, *origin_type, target, *target_type, at, put); });
}

template <class Issue>
Outcome Window::watched(Strict::Operation operation, Issue&& issue_it) {
  bool of_lock_all = false;
  {
    const auto held = guard();
    of_lock_all = epoch_.access() == epochs::Access::kLockedAll && !lock_all_unchecked_;
    switch (epoch_.access()) {
      case epochs::Access::kStarted: operation.epoch = Strict::Epoch::kStarted; break;
      case epochs::Access::kLocked:
      case epochs::Access::kLockedAll: operation.epoch = Strict::Epoch::kPassive; break;
      default: operation.epoch = Strict::Epoch::kFence;
    }
  }
  if (of_lock_all) {
    if (Outcome o = check_not_exposed(operation.target.rank); !o) return o;
  }
  return strict_->watch(operation, issue_it);
}

Outcome Window::move_bytes(void* here, const RemoteBuffer& target, std::uint64_t offset, std::size_t bytes, bool put) {
  if (put && space_->may_keep_puts()) {
    const bool until_end = in_active_epoch(target.rank);
    // Threads that put under locks need not share a list.
    if (until_end || (!threaded() && epoch_.allows_fast_flush(target.rank))) {
      return space_->put_kept(target.rank, offset, here, bytes, target.own,
                              until_end ? CmaRoute::Keep::kUntilEnd : CmaRoute::Keep::kUntilFlush);
    }
  }
  return put ? space_->put(target.rank, offset, here, bytes, target.own)
             : space_->get(target.rank, offset, here, bytes, target.own);
}

Outcome Window::move(const LocalBuffer& origin, const Datatype& origin_type, const RemoteBuffer& target,
                     const Datatype& target_type, std::int64_t at, bool put) {
  if (origin_type.contiguous && target_type.contiguous) [[likely]] {
    return move_bytes(origin.address, target, static_cast<std::uint64_t>(at),
                      put ? static_cast<std::size_t>(origin.count) * origin_type.size
                          : static_cast<std::size_t>(target.count) * target_type.size,
                      put);
  }
  if (std::optional<Outcome> moved = move_ranges(origin, origin_type, target, target_type, at, put))
    return std::move(*moved);
  ByteFragments fragments(*origin_type.layout, static_cast<std::size_t>(origin.count), *target_type.layout,
                          static_cast<std::size_t>(target.count));
  ByteFragment fragment;
  if (!fragments.next(fragment)) return {};
  // The estimate of the count assumes fragments of one length, which is the common case.
  const std::size_t bytes = put ? static_cast<std::size_t>(origin.count) * origin_type.size
                                : static_cast<std::size_t>(target.count) * target_type.size;
  Space::Fragments moved(*space_, target.rank, target.own, bytes / fragment.bytes);
  Status status;
  do {
    const auto offset = static_cast<std::uint64_t>(at + fragment.target_offset);
    std::byte* local = bytes_at(origin.address, fragment.origin_offset);
    status = put ? moved.put(offset, local, fragment.bytes) : moved.get(offset, local, fragment.bytes);
  } while (status && fragments.next(fragment));
  return first_of(status, moved.end());
}

// Moves data by loops over the shapes of both layouts. If a shape is not simple, returns nullopt and moves nothing.
std::optional<Outcome> Window::move_ranges(const LocalBuffer& origin, const Datatype& origin_type,
                                           const RemoteBuffer& target, const Datatype& target_type, std::int64_t at,
                                           bool put) {
  const std::optional<Ranges> to = target_type.layout->ranges(static_cast<std::size_t>(target.count));
  const std::optional<Ranges> from = origin_type.layout->ranges(static_cast<std::size_t>(origin.count));
  if (!to || !from) return std::nullopt;
  std::byte* const here = bytes_at(origin.address, 0);
  std::byte* there = space_->mapped(target.rank);
  if (there == nullptr) {
    Space::Fragments fragments(*space_, target.rank, target.own,
                               std::max(to->count * to->outer, from->count * from->outer));
    Status status;
    const bool fits = for_ranges(*to, *from,
                                 [&](std::ptrdiff_t target_at, std::ptrdiff_t target_stride, std::ptrdiff_t origin_at,
                                     std::ptrdiff_t origin_stride, std::size_t bytes, std::size_t count) {
                                   if (!status) return;
                                   const auto offset = static_cast<std::uint64_t>(at + target_at);
                                   const Blocks blocks{count, target_stride, origin_stride};
                                   status = put ? fragments.put(offset, here + origin_at, bytes, blocks)
                                                : fragments.get(offset, here + origin_at, bytes, blocks);
                                 });
    if (!fits) return std::nullopt;
    return first_of(status, fragments.end());
  }
  there += at;
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
  space_->moved(target.rank, put ? Counted::kPut : Counted::kGet, to->total());
  return Outcome{};
}

Outcome Window::accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target,
                           MPI_Op op) {
  if (DeviceMemory::possible()) [[unlikely]] {
    if (std::optional<Outcome> staged = stage_accumulate(origin, result, target, op)) return std::move(*staged);
  }
  const std::optional<ReduceOp> reduce = find_reduce_op(op);
  if (!reduce) {
    return Fault{MPI_ERR_OP,
                 "the operation is not a predefined one; only those and MPI_REPLACE and MPI_NO_OP may be used "
                 "(MPI 4.0 section 12.3.4)"};
  }
  if (result == nullptr && *reduce == ReduceOp::kNoOp) {
    return Fault{MPI_ERR_OP,
                 "MPI_NO_OP is only for the calls that fetch; use MPI_Get_accumulate "
                 "(MPI 4.0 section 12.3.4)"};
  }
  const bool reads_origin = *reduce != ReduceOp::kNoOp;
  if (reads_origin) {
    if (Outcome o = check_count(origin.count, "origin"); !o) return o;
  }
  if (result != nullptr) {
    if (Outcome o = check_count(result->count, "result"); !o) return o;
  }
  if (Outcome o = check_count(target.count, "target"); !o) return o;
  if (target.rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(target.rank); !o) return o;

  const Datatype* target_type = nullptr;
  if (Outcome o = find_type(target.type, "target", target_type); !o) return o;
  const Datatype* origin_type = target_type;
  if (reads_origin && origin.type != target.type) {
    if (Outcome o = find_type(origin.type, "origin", origin_type); !o) return o;
  }
  const Datatype* result_type = target_type;
  if (result != nullptr && result->type != target.type) {
    if (Outcome o = find_type(result->type, "result", result_type); !o) return o;
  }
  std::size_t bytes = 0;
  if (Outcome o = count_bytes(target.count, *target_type, "target", bytes); !o) return o;
  std::size_t origin_bytes = bytes;
  if (reads_origin) {
    if (Outcome o = count_bytes(origin.count, *origin_type, "origin", origin_bytes); !o) return o;
  }
  if (Outcome o = check_fits(origin_bytes, bytes); !o) return o;
  if (result != nullptr) {
    // The fetch returns as many bytes as the target describes.
    std::size_t room = 0;
    if (Outcome o = count_bytes(result->count, *result_type, "result", room); !o) return o;
    if (Outcome o = check_fits(bytes, room); !o) return o;
    if (Outcome o = check_fits(bytes, origin_bytes); !o) return o;
  }
  if (bytes == 0) {
    if (Outcome o = check_displacement(target.displacement); !o) return o;
    return check_operation(target.rank, reads_origin);
  }
  if (reads_origin) {
    if (Outcome o = check_buffer(origin.address, *origin_type, origin_bytes, "origin"); !o) return o;
  }
  if (result != nullptr) {
    if (Outcome o = check_buffer(result->address, *result_type, bytes, "result"); !o) return o;
  }

  const std::optional<BasicType> element = target_type->layout->uniform_type();
  if (!element) {
    return Fault{MPI_ERR_TYPE,
                 "the target datatype mixes basic types; an accumulate needs one (MPI 4.0 section 12.3.4)"};
  }
  if (reads_origin && origin_type->layout->uniform_type() != element) {
    return Fault{MPI_ERR_TYPE, fmt::format("the origin datatype is not made of {} as the target's is; use one "
                                           "basic type (MPI 4.0 section 12.3.4)",
                                           traits(*element).name)};
  }
  if (result != nullptr && result_type->layout->uniform_type() != element) {
    return Fault{MPI_ERR_TYPE, fmt::format("the result datatype is not made of {} as the target's is; use one "
                                           "basic type (MPI 4.0 section 12.3.4)",
                                           traits(*element).name)};
  }
  if (!allowed(*reduce, *element)) {
    return Fault{MPI_ERR_OP, fmt::format("{} is not defined for {}; use an operation that is (MPI 4.0 section 6.9.2)",
                                         farside::name(*reduce), traits(*element).name)};
  }
  std::int64_t at = 0;
  if (Outcome o = locate(target, *target_type, at); !o) return o;
  if (Outcome o = check_operation(target.rank, reads_origin); !o) return o;

  if (origin_bytes == 0) return {};
  if (strict_ == nullptr) [[likely]] {
    return operated(target.rank, result != nullptr ? Counted::kFetch : Counted::kAccumulate, bytes, [&] {
      return combine(origin, *origin_type, result, *result_type, target, *target_type, at, *reduce, *element);
    });
  }
  const Strict::Side from{origin.address, origin.count, origin_type};
  const Strict::Side to = result != nullptr ? Strict::Side{result->address, result->count, result_type} : from;
  return watched(
      {result != nullptr ? Strict::Call::kGetAccumulate : Strict::Call::kAccumulate,
       reads_origin ? epochs::Use::kAccumulate : epochs::Use::kFetch,
       *element,
       {},
       reads_origin ? &from : nullptr,
       result != nullptr ? &to : nullptr,
       {target.rank, at, target.count, target_type},
       target.watched},
      [&] { return combine(origin, *origin_type, result, *result_type, target, *target_type, at, *reduce, *element); });
}

Outcome Window::combine(const LocalBuffer& origin, const Datatype& origin_type, const LocalBuffer* result,
                        const Datatype& result_type, const RemoteBuffer& target, const Datatype& target_type,
                        std::int64_t at, ReduceOp op, BasicType element) {
  const bool reads_origin = op != ReduceOp::kNoOp;
  const auto target_count = static_cast<std::size_t>(target.count);
  const void* from = reads_origin ? origin.address : nullptr;
  if (target_type.basic && origin_type.basic && result_type.basic) [[likely]] {
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
    return space_->accumulate(target.rank, static_cast<std::uint64_t>(at), op, element, from,
                              result != nullptr ? result->address : nullptr, count, access(target.rank), target.own);
  }
  if (result == nullptr) {
    if (!reads_origin) return {};
    const std::optional<Ranges> from_ranges = origin_type.layout->ranges(static_cast<std::size_t>(origin.count));
    std::optional<Outcome> combined_so =
        combine_ranges(bytes_at(from, 0), nullptr, from_ranges, target, target_type, at, op, element);
    if (combined_so) return std::move(*combined_so);
    ElementFragments fragments(*origin_type.layout, static_cast<std::size_t>(origin.count), *target_type.layout,
                               target_count);
    ElementFragment fragment;
    if (!fragments.next(fragment)) return {};
    const std::size_t elements = origin_type.layout->elements() * static_cast<std::size_t>(origin.count);
    Space::Fragments combined(*space_, target.rank, target.own, elements / fragment.count);
    Status status;
    do {
      status =
          combined.accumulate(static_cast<std::uint64_t>(at + fragment.target_offset), op, element,
                              bytes_at(from, fragment.origin_offset), nullptr, fragment.count, access(target.rank));
    } while (status && fragments.next(fragment));
    return first_of(status, combined.end());
  }
  // With three layouts, origin and result go through contiguous copies, which must live until all operations are
  // complete.
  const std::size_t elements = target_type.layout->elements() * target_count;
  std::vector<std::byte> packed(reads_origin ? elements * traits(element).extent : 0);
  std::vector<std::byte> fetched(elements * traits(element).extent);
  if (reads_origin)
    copy_elements(Direction::kIn, packed, origin, beside_packed(origin, origin_type, element, elements));
  // Made before the operation, since it may lack memory.
  ByteFragments into = beside_packed(*result, result_type, element, elements);
  const Ranges contiguous{0, fetched.size(), 1, 0, 1, 0};
  if (std::optional<Outcome> issued = combine_ranges(reads_origin ? packed.data() : nullptr, fetched.data(), contiguous,
                                                     target, target_type, at, op, element)) {
    Outcome completed = first_of(std::move(*issued), space_->flush(target.rank));
    if (completed) copy_elements(Direction::kOut, fetched, *result, std::move(into));
    return completed;
  }
  const auto flat = Layout::basic(element);
  ElementFragments fragments(*flat, elements, *target_type.layout, target_count);
  ElementFragment fragment;
  if (!fragments.next(fragment)) return {};
  Space::Fragments combined(*space_, target.rank, nullptr, elements / fragment.count);
  Status status;
  do {
    status = combined.accumulate(static_cast<std::uint64_t>(at + fragment.target_offset), op, element,
                                 reads_origin ? packed.data() + fragment.origin_offset : nullptr,
                                 fetched.data() + fragment.origin_offset, fragment.count, access(target.rank));
  } while (status && fragments.next(fragment));
  Status issued = combined.end();
  Status completed = space_->flush(target.rank);
  for (Status* step : {&status, &issued, &completed}) {
    if (!*step) return std::move(*step);
  }
  copy_elements(Direction::kOut, fetched, *result, std::move(into));
  return {};
}

// Like move_ranges, for accumulates of types without gaps. Fetched elements have the layout of the origin's elements.
// With a fetch, a null `origin` means that nothing is sent; without one it is MPI_BOTTOM.
std::optional<Outcome> Window::combine_ranges(const std::byte* origin, std::byte* fetched,
                                              const std::optional<Ranges>& from, const RemoteBuffer& target,
                                              const Datatype& target_type, std::int64_t at, ReduceOp op,
                                              BasicType element) {
  if (has_gap(element)) return std::nullopt;
  const std::optional<Ranges> to = target_type.layout->ranges(static_cast<std::size_t>(target.count));
  if (!to || !from) return std::nullopt;
  const bool sends = origin != nullptr || fetched == nullptr;
  const NodeTarget* const there = space_->mapped_target(target.rank);
  std::optional<Space::Fragments> fragments;
  if (there == nullptr) {
    // The caller flushes after a fetch, so the request needs no counters of its own.
    Outstanding* const own = fetched == nullptr ? target.own : nullptr;
    fragments.emplace(*space_, target.rank, own, std::max(to->count * to->outer, from->count * from->outer));
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
          space_->accumulate_rows_at(*there, there->data + at + target_at, target_stride, op, element, sent, back,
                                     origin_stride, elements, count, access(target.rank));
        } else if (status) {
          status = fragments->accumulate(static_cast<std::uint64_t>(at + target_at), op, element, sent, back, elements,
                                         access(target.rank), {count, target_stride, origin_stride});
        }
      });
  if (!fits) return std::nullopt;
  return fragments ? first_of(status, fragments->end()) : Outcome{};
}

Outcome Window::fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                             MPI_Op op) {
  const Datatype* found = nullptr;
  if (Outcome o = find_type(type, "the", found); !o) return o;
  if (!found->basic) {
    return Fault{MPI_ERR_TYPE, "the datatype must be a predefined one (MPI 4.0 section 12.3.4)"};
  }
  const LocalBuffer from{const_cast<void*>(origin), 1, type};
  const LocalBuffer to{result, 1, type};
  return accumulate(from, &to, {rank, displacement, 1, type}, op);
}

Outcome Window::compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                                 MPI_Aint displacement) {
  if (DeviceMemory::possible()) [[unlikely]] {
    std::optional<Outcome> staged = stage_compare_and_swap(origin, compare, result, type, rank, displacement);
    if (staged) return std::move(*staged);
  }
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  const Datatype* found = nullptr;
  if (Outcome o = find_type(type, "the", found); !o) return o;
  if (!found->basic || !can_compare_and_swap(*found->basic)) {
    return Fault{MPI_ERR_TYPE,
                 "the datatype must be a predefined integer, logical, multi-language type or byte "
                 "(MPI 4.0 section 12.3.4)"};
  }
  for (const auto& [address, whose] : {std::pair{origin, "origin"}, {compare, "compare"}, {result, "result"}}) {
    if (Outcome o = check_buffer(address, *found, found->size, whose); !o) return o;
  }
  std::int64_t at = 0;
  if (Outcome o = locate({rank, displacement, 1, type}, *found, at); !o) return o;
  if (Outcome o = check_operation(rank, true); !o) return o;
  const auto swap = [&]() -> Outcome {
    return space_->compare_and_swap(rank, static_cast<std::uint64_t>(at), *found->basic, origin, compare, result);
  };
  if (strict_ == nullptr) [[likely]]
    return operated(rank, Counted::kCompareAndSwap, found->size, swap);
  const Strict::Side from{origin, 1, found};
  const Strict::Side to{result, 1, found};
  return watched(
      {Strict::Call::kCompareAndSwap, epochs::Use::kAccumulate, *found->basic, {}, &from, &to, {rank, at, 1, found}},
      swap);
}

Outcome Window::begin_request_operation(int rank, std::unique_ptr<Outstanding>& own) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = check_rank(rank); !o) return o;
  if (!holds_in_stripe(rank)) {
    const auto held = guard();
    if (const epochs::Violation v = epoch_.request_operation(rank)) return v;
  }
  Result<std::unique_ptr<Outstanding>> made = space_->own_outstanding(rank);
  if (made) own = std::move(made.value());
  return made.status();
}

void Window::end_request_operation(int rank) {
  if (rank != MPI_PROC_NULL) progress_runtime();
}

}  // namespace farside::pmpi
