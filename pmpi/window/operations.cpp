// SPDX-License-Identifier: BSD-3-Clause
// Communication calls of a window outside the fast path: their checks, and what moves and combines data.
#include "pmpi/window/operations.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "transport/base/integers.hpp"
#include "transport/routes/route.hpp"
#include "transport/space/regions.hpp"

namespace farside::pmpi {
namespace {

// The fragments of a buffer with a layout, beside contiguous elements.
ByteFragments beside_packed(const LocalBuffer& buffer, const Datatype& type, BasicType element, std::size_t elements) {
  return {*type.layout, static_cast<std::size_t>(buffer.count), *Layout::basic(element), elements};
}

// Copies between contiguous elements and such a buffer.
void copy_elements(std::byte* packed, const LocalBuffer& buffer, ByteFragments fragments, bool into_buffer) {
  for (Fragment fragment; fragments.next(fragment);) {
    std::byte *there = byte_at(buffer.address, fragment.origin_offset), *here = packed + fragment.target_offset;
    std::memcpy(into_buffer ? there : here, into_buffer ? here : there, fragment.count);
  }
}

// A null address is MPI_BOTTOM, which is valid only for a type of absolute addresses.
Status check_buffer(const void* address, const Datatype& type, std::size_t bytes, const char* whose) {
  if (address != nullptr || bytes == 0 || !type.contiguous) [[likely]]
    return {};
  return Fault{MPI_ERR_BUFFER,
               fmt::format("the {} buffer is null, for {} bytes; give it memory (MPI 4.0 section 12.3)", whose, bytes)};
}

// MPI 4.0 section 12.3.1: the data must fit without truncation, as in send and receive.
Status check_fits(std::size_t sent_bytes, std::size_t room_bytes) {
  if (sent_bytes <= room_bytes) [[likely]]
    return {};
  return Fault{MPI_ERR_TRUNCATE,
               fmt::format("{} bytes are sent where count and datatype leave room for {}; origin and target must match "
                           "(MPI 4.0 section 12.3.1)",
                           sent_bytes, room_bytes)};
}

// The nearest number of 64 bits: fmt 9 does not print 128 bits everywhere.
std::int64_t in_digits(Wide value) {
  using Limits = std::numeric_limits<std::int64_t>;
  return static_cast<std::int64_t>(std::clamp<Wide>(value, Limits::min(), Limits::max()));
}

// A buffer of a call, and what the checks find of it.
struct Side {
  const char* whose;
  const void* address;
  std::int64_t count;
  MPI_Datatype handle;
  const Datatype* type;
  std::size_t bytes;
};

// Checks counts, rank and datatypes; most calls have one datatype.
Status check_sides(const WindowState& window, int rank, std::span<Side> sides) {
  for (const Side& side : sides) {
    if (side.count >= 0) continue;
    return Fault{MPI_ERR_COUNT, fmt::format("the {} count is {}; it may not be negative (MPI 4.0 section 12.3)",
                                            side.whose, side.count)};
  }
  if (rank == MPI_PROC_NULL) return {};
  if (Status o = window.check_rank(rank); !o) return o;
  for (Side& side : sides) {
    if (side.handle == sides.front().handle) side.type = sides.front().type;
    if (Error why; side.type == nullptr && (side.type = find_datatype(side.handle, &why)) == nullptr)
      return Fault{MPI_ERR_TYPE, fmt::format("{} datatype: {} (MPI 4.0 section 12.3)", side.whose, why.text)};
    const std::optional<std::size_t> bytes = bytes_of(static_cast<std::size_t>(side.count), side.type->size);
    if (!bytes) {
      return Fault{MPI_ERR_COUNT,
                   fmt::format("the {} count is {}, of a datatype of {} bytes; together they may be 2^63 - 1 bytes at "
                               "most (MPI 4.0 section 12.3)",
                               side.whose, side.count, side.type->size)};
    }
    side.bytes = *bytes;
  }
  return {};
}

// Translates the operation of an accumulate.
Status check_op(Operation& operation) {
  const std::optional<ReduceOp> reduce = find_reduce_op(operation.op);
  if (!reduce) {
    return Fault{MPI_ERR_OP,
                 "the operation is not a predefined one; only those and MPI_REPLACE and MPI_NO_OP may be used "
                 "(MPI 4.0 section 12.3.4)"};
  }
  if (*reduce == ReduceOp::kNoOp && !operation.fetches()) {
    return Fault{MPI_ERR_OP,
                 "MPI_NO_OP is only for the calls that fetch; use MPI_Get_accumulate (MPI 4.0 section 12.3.4)"};
  }
  operation.reduce = *reduce;
  return {};
}

// The elements that an accumulate combines: of one type, with which the operation is allowed.
Status check_elements(Operation& operation, std::span<const Side> sides) {
  const std::optional<BasicType> element = sides.front().type->layout->uniform_type();
  if (!element) {
    return Fault{MPI_ERR_TYPE,
                 "the target datatype mixes basic types; an accumulate needs one (MPI 4.0 section 12.3.4)"};
  }
  for (const Side& side : sides) {
    if (side.type->layout->uniform_type() == element) continue;
    return Fault{MPI_ERR_TYPE, fmt::format("the {} datatype is not made of {} as the target's is; use one basic type "
                                           "(MPI 4.0 section 12.3.4)",
                                           side.whose, traits(*element).name)};
  }
  if (!allowed(operation.reduce, *element)) {
    return Fault{MPI_ERR_OP, fmt::format("{} is not defined for {}; use an operation that is (MPI 4.0 section 6.9.2)",
                                         farside::name(operation.reduce), traits(*element).name)};
  }
  operation.element = *element;
  return {};
}

// Operations::locate() in a dynamic window (MPI 4.0 section 12.2.4), where displacements are addresses.
Status locate_attached(const WindowState& window, Operation& operation, Wide first, Wide last) {
  const RemoteBuffer& target = operation.target;
  const Datatype& type = *operation.target_type;
  const auto attached = [&](Wide from, Wide to) -> Result<bool> {
    if (from < 0 || to > std::numeric_limits<std::int64_t>::max()) return false;
    return window.space->regions()->covered(target.rank, static_cast<std::uint64_t>(from),
                                            static_cast<std::uint64_t>(to - from));
  };
  Result<bool> all = attached(first, last);
  if (all && !all.value() && !type.contiguous) {
    // Each run by itself, because a datatype of absolute addresses may reach into several regions.
    all = true;
    RunCursor runs(*type.layout, static_cast<std::size_t>(target.count));
    for (Layout::Run run; all && all.value() && runs.next(run);) {
      const Wide at = static_cast<Wide>(target.displacement) + run.offset;
      all = attached(at, at + static_cast<Wide>(span_of(run.type, run.count)));
    }
  }
  if (!all) return all.status();
  if (!all.value()) {
    return Fault{MPI_ERR_RMA_RANGE,
                 fmt::format("{} elements at {:#x} reach beyond the memory that rank {} has attached (MPI 4.0 section "
                             "12.2.4)",
                             target.count, target.displacement, target.rank)};
  }
  operation.at = target.displacement - static_cast<std::int64_t>(Regions::kFirst);
  return {};
}

}  // namespace

Status Operations::locate(Operation& operation) const {
  const RemoteBuffer& target = operation.target;
  const Layout& layout = *operation.target_type->layout;
  const Wide stretch = static_cast<Wide>(target.count - 1) * layout.extent();
  const Wide before = layout.true_lower_bound() + std::min<Wide>(stretch, 0);
  const Wide behind = layout.true_upper_bound() + std::max<Wide>(stretch, 0);
  if (window_.space->regions() != nullptr) [[unlikely]]
    return locate_attached(window_, operation, target.displacement + before, target.displacement + behind);
  const Result<Space::Extent> extent = window_.space->extent(target.rank);
  if (!extent) return extent.status();
  const std::uint64_t bytes = extent.value().bytes;
  const Wide at = static_cast<Wide>(target.displacement) * extent.value().unit;
  if (at + before >= 0 && at + behind <= static_cast<Wide>(bytes)) [[likely]] {
    operation.at = static_cast<std::int64_t>(at);
    return {};
  }
  return Fault{
      MPI_ERR_RMA_RANGE,
      fmt::format("displacement {} (unit {}) and count {} reach from byte {} to {}, beyond the {} bytes of rank "
                  "{}'s window; access only what lies within it (MPI 4.0 section 12.3.1)",
                  target.displacement, extent.value().unit, target.count, in_digits(at + before),
                  in_digits(at + behind), bytes, target.rank)};
}

Status Operations::check(Operation& operation) {
  const auto& [call, origin, result, target] =
      std::tie(operation.call, operation.origin, operation.result, operation.target);
  const bool accumulates = call == Counted::kAccumulate || call == Counted::kFetch;
  operation.bytes = 0;
  operation.element = BasicType::kByte;
  if (accumulates) {
    if (Status o = check_op(operation); !o) return o;
  }
  operation.reads_origin = call != Counted::kGet && !(accumulates && operation.reduce == ReduceOp::kNoOp);
  std::array<Side, 3> sides;  // NOLINT(cppcoreguidelines-pro-type-member-init): to clear it costs 10 ns
  sides[0] = {"target", nullptr, target.count, target.type, nullptr, 0};
  std::size_t used = 1;
  const Side &to = sides[0], *from = nullptr, *into = nullptr;
  if (operation.reads_origin || call == Counted::kGet)
    from = &(sides[used++] = {"origin", origin.address, origin.count, origin.type, nullptr, 0});
  if (operation.fetches()) into = &(sides[used++] = {"result", result.address, result.count, result.type, nullptr, 0});
  const std::span<Side> all = std::span(sides).first(used), local = all.subspan(1);
  if (Status o = check_sides(window_, target.rank, all); !o || target.rank == MPI_PROC_NULL) return o;

  const std::size_t sent = operation.reads_origin ? from->bytes : to.bytes;
  // A fetch returns as many bytes as the target describes.
  if (Status o = check_fits(sent, call == Counted::kGet ? from->bytes : to.bytes); !o) return o;
  if (into != nullptr) {
    if (Status o = check_fits(to.bytes, std::min(into->bytes, sent)); !o) return o;
  }
  operation.target_type = to.type;
  operation.origin_type = from != nullptr ? from->type : to.type;
  operation.result_type = into != nullptr ? into->type : to.type;
  if (operation.predefined_only && !to.type->basic)
    return Fault{MPI_ERR_TYPE, "the datatype must be a predefined one (MPI 4.0 section 12.3.4)"};
  if (call == Counted::kCompareAndSwap) {
    if (!can_compare_and_swap(*to.type->basic)) {
      return Fault{MPI_ERR_TYPE,
                   "the datatype must be a predefined integer, logical, multi-language type or byte "
                   "(MPI 4.0 section 12.3.4)"};
    }
    operation.element = *to.type->basic;
    if (Status o = check_buffer(operation.compare, *to.type, to.bytes, "compare"); !o) return o;
  }
  if (target.displacement < 0) {
    return Fault{MPI_ERR_DISP, fmt::format("the target displacement is {}; it may not be negative (MPI 4.0 section "
                                           "12.3.1)",
                                           target.displacement)};
  }
  if (to.bytes > 0) {
    for (const Side& side : local) {
      if (Status o = check_buffer(side.address, *side.type, std::min(side.bytes, sent), side.whose); !o) return o;
    }
    if (accumulates) {
      if (Status o = check_elements(operation, all); !o) return o;
    }
    if (Status o = locate(operation); !o) return o;
    operation.bytes = sent;
  }
  if (window_.holds_in_stripe(target.rank)) return {};
  return window_.allow([&](auto& epoch) { return epoch.operation(target.rank, operation.reads_origin); });
}

Status Operations::begin_request(int rank, std::unique_ptr<Pending>& own) {
  if (rank == MPI_PROC_NULL) return {};
  if (Status o = window_.check_rank(rank); !o) return o;
  const auto ask = [&](auto& epoch) { return epoch.request_operation(rank); };
  if (Status o = window_.holds_in_stripe(rank) ? Status() : window_.allow(ask); !o) return o;
  Result<std::unique_ptr<Pending>> made = window_.space->route(rank).own_pending(rank);
  if (made) own = std::move(made.value());
  return made.status();
}

// The elements of one predefined type, in an epoch that is open: conditions of check(), or stricter.
std::optional<Status> Operations::transfer_plain(const Operation& operation) {
  const RemoteBuffer& target = operation.target;
  if (operation.origin.type != target.type || operation.origin.count != target.count) return std::nullopt;
  const std::size_t bytes = plain_bytes(target.type, target.count);
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
  return move_bytes(operation, at, bytes);
}

Status Operations::execute(const Operation& operation) {
  switch (operation.call) {
    case Counted::kPut:
    case Counted::kGet: return move(operation);
    case Counted::kAccumulate:
    case Counted::kFetch: return combine(operation);
    default: break;
  }
  return window_.space->route(operation.target.rank)
      .carry_out(operation.target.rank, DataOperation::compare_and_swap(static_cast<std::uint64_t>(operation.at),
                                                                        operation.element, operation.origin.address,
                                                                        operation.compare, operation.result.address));
}

Status Operations::move_bytes(const Operation& operation, std::uint64_t offset, std::size_t bytes) {
  const RemoteBuffer& target = operation.target;
  void* const here = operation.origin.address;
  Route& route = window_.space->route(target.rank);
  if (operation.call == Counted::kGet)
    return route.carry_out(target.rank, DataOperation::get(offset, here, bytes), target.own);
  const DataOperation put = DataOperation::put(offset, here, bytes);
  if (window_.space->may_queue_puts()) {
    const bool until_end = in_active_epoch(target.rank);
    // Threads that put under locks need not share a list.
    if (until_end || (!window_.threaded() && window_.epoch.allows_fast(epochs::Call::kFlush, target.rank)))
      return route.queue_put(target.rank, put, target.own, until_end ? Route::Until::kEnd : Route::Until::kFlush);
  }
  return route.carry_out(target.rank, put, target.own);
}

// Carries out an operation by parts, of which part(offset there, offset at the origin, bytes) returns one: by loops
// over the shapes of both layouts if these are simple, else by the fragments that they have in common. `from`: the
// layout of the origin, `count` times.
template <class CommonFragments, class Part>
Status Operations::by_parts(const Operation& operation, const Layout& from, std::size_t count, Pending* own,
                            Part&& part) {
  const int rank = operation.target.rank;
  const Layout& there = *operation.target_type->layout;
  const auto target_count = static_cast<std::size_t>(operation.target.count);
  Route& route = window_.space->route(rank);
  const auto at = [&](std::ptrdiff_t offset) { return static_cast<std::uint64_t>(operation.at + offset); };
  Status status;
  const std::optional<Ranges> to = there.ranges(target_count), here = from.ranges(count);
  if (to && here && !has_gap(operation.element)) {
    Fragments ranges(route, rank, own, std::max(to->count * to->outer, here->count * here->outer));
    const auto add = [&](std::ptrdiff_t target_at, std::ptrdiff_t stride, std::ptrdiff_t origin_at,
                         std::ptrdiff_t origin_stride, std::size_t bytes, std::size_t blocks) {
      if (status) status = ranges.add(part(at(target_at), origin_at, bytes).repeated(blocks, stride, origin_stride));
    };
    if (for_ranges(*to, *here, add)) return first_of(status, ranges.end());
  }
  CommonFragments common(from, count, there, target_count);
  Fragment fragment;
  if (!common.next(fragment)) return {};
  const std::size_t unit = traits(operation.element).size;
  // The estimate of the count assumes fragments of one length, which is the common case.
  Fragments fragments(route, rank, own, operation.bytes / (fragment.count * unit));
  do {
    status = fragments.add(part(at(fragment.target_offset), fragment.origin_offset, fragment.count * unit));
  } while (status && common.next(fragment));
  return first_of(status, fragments.end());
}

Status Operations::move(const Operation& operation) {
  const Datatype &origin_type = *operation.origin_type, &target_type = *operation.target_type;
  if (origin_type.contiguous && target_type.contiguous) [[likely]] {
    return move_bytes(operation, static_cast<std::uint64_t>(operation.at), operation.bytes);
  }
  std::byte* const here = byte_at(operation.origin.address, 0);
  const bool put = operation.call == Counted::kPut;
  return by_parts<ByteFragments>(operation, *origin_type.layout, static_cast<std::size_t>(operation.origin.count),
                                 operation.target.own, [&](std::uint64_t offset, std::ptrdiff_t at, std::size_t bytes) {
                                   return put ? DataOperation::put(offset, here + at, bytes)
                                              : DataOperation::get(offset, here + at, bytes);
                                 });
}

Status Operations::combine(const Operation& operation) {
  const auto& [origin, result, target] = std::tie(operation.origin, operation.result, operation.target);
  const Datatype &origin_type = *operation.origin_type, &result_type = *operation.result_type;
  const BasicType element = operation.element;
  const bool reads_origin = operation.reads_origin, fetches = operation.fetches();
  const auto target_count = static_cast<std::size_t>(target.count);
  const void* from = reads_origin ? origin.address : nullptr;
  if (operation.target_type->basic && origin_type.basic && result_type.basic) [[likely]] {
    const std::size_t count = reads_origin ? static_cast<std::size_t>(origin.count) : target_count;
    std::vector<std::byte> operands;
    if (fetches && reads_origin && overlap(from, result.address, count * traits(element).extent)) [[unlikely]] {
      // An error of the program (MPI 4.0 section 12.3.4) that the runtimes do not notice: they have read the operands
      // before they write results. No route needs the operands of an accumulate after the call.
      const auto* const first = static_cast<const std::byte*>(from);
      operands.assign(first, first + span_of(element, count));
      from = operands.data();
    }
    return window_.space->route(target.rank)
        .carry_out(target.rank,
                   DataOperation::accumulate(static_cast<std::uint64_t>(operation.at), operation.reduce, element, from,
                                             fetches ? result.address : nullptr, count, access(target.rank)),
                   target.own);
  }
  if (!fetches) {
    return combine_layouts(operation, byte_at(from, 0), nullptr, *origin_type.layout,
                           static_cast<std::size_t>(origin.count));
  }
  // With three layouts, origin and result go through contiguous copies, which must live until all operations are
  // complete.
  const std::size_t elements = operation.target_type->layout->elements() * target_count;
  std::vector<std::byte> packed(reads_origin ? elements * traits(element).extent : 0);
  std::vector<std::byte> fetched(elements * traits(element).extent);
  if (reads_origin) copy_elements(packed.data(), origin, beside_packed(origin, origin_type, element, elements), false);
  // Made before the operation, since it may lack memory.
  ByteFragments into = beside_packed(result, result_type, element, elements);
  Status issued = combine_layouts(operation, reads_origin ? packed.data() : nullptr, fetched.data(),
                                  *Layout::basic(element), elements);
  Status completed = first_of(std::move(issued), window_.space->route(target.rank).flush(target.rank));
  if (completed) copy_elements(fetched.data(), result, std::move(into), true);
  return completed;
}

// Combines `count` elements of a layout at `origin` with the target's. Fetched elements have the same layout. With a
// fetch, a null `origin` means that nothing is sent; without one it is MPI_BOTTOM.
Status Operations::combine_layouts(const Operation& operation, const std::byte* origin, std::byte* fetched,
                                   const Layout& layout, std::size_t count) {
  const BasicType type = operation.element;
  const Access among = access(operation.target.rank);
  const auto part = [&](std::uint64_t offset, std::ptrdiff_t at, std::size_t bytes) {
    const bool sends = origin != nullptr || fetched == nullptr;
    return DataOperation::accumulate(offset, operation.reduce, type, sends ? byte_at(origin, at) : nullptr,
                                     fetched != nullptr ? fetched + at : nullptr, bytes / traits(type).size, among);
  };
  // The caller flushes after a fetch, so the request needs no counters.
  return by_parts<ElementFragments>(operation, layout, count, fetched == nullptr ? operation.target.own : nullptr,
                                    part);
}

}  // namespace farside::pmpi
