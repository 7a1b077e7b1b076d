// SPDX-License-Identifier: BSD-3-Clause
// The checks of communication calls: arguments, range and epoch (MPI 4.0 section 12.3).
#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "pmpi/window/operations.hpp"
#include "transport/base/integers.hpp"
#include "transport/space/regions.hpp"

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

// A buffer of a call, and what the checks find of it.
struct Side {
  const char* whose;
  const void* address;
  std::int64_t count;
  MPI_Datatype handle;
  const Datatype* type = nullptr;
  std::size_t bytes = 0;
};

// Checks counts, rank and datatypes; most calls have one datatype.
Outcome check_sides(const WindowState& window, int rank, std::span<Side> sides) {
  for (const Side& side : sides) {
    if (Outcome o = check_count(side.count, side.whose); !o) return o;
  }
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = window.check_rank(rank); !o) return o;
  for (Side& side : sides) {
    if (side.handle == sides.front().handle) side.type = sides.front().type;
    if (side.type == nullptr) {
      if (Outcome o = find_type(side.handle, side.whose, side.type); !o) return o;
    }
    if (Outcome o = count_bytes(side.count, *side.type, side.whose, side.bytes); !o) return o;
  }
  return {};
}

}  // namespace

Outcome Operations::check_epoch(int rank, bool updates) {
  if (window_.holds_in_stripe(rank)) return {};
  const auto held = window_.guard();
  return window_.epoch.operation(rank, updates);
}

Outcome Operations::locate(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const {
  if (Outcome o = check_displacement(target.displacement); !o) return o;
  if (window_.space->regions() != nullptr) [[unlikely]]
    return locate_attached(target, type, origin_at);
  const Result<Space::Extent> extent = window_.space->extent(target.rank);
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

Outcome Operations::locate_attached(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const {
  const auto attached = [&](Wide first, Wide last) -> Result<bool> {
    if (first < 0 || last > std::numeric_limits<std::int64_t>::max()) return false;
    return window_.space->regions()->covered(target.rank, static_cast<std::uint64_t>(first),
                                             static_cast<std::uint64_t>(last - first));
  };
  const auto at = static_cast<Wide>(target.displacement);
  const Wide stretch = static_cast<Wide>(target.count - 1) * type.layout->extent();
  const Wide first = at + type.layout->true_lower_bound() + std::min<Wide>(stretch, 0);
  const Wide last = at + type.layout->true_upper_bound() + std::max<Wide>(stretch, 0);
  Result<bool> all = attached(first, last);
  if (all && !all.value() && !type.contiguous) {
    // Each run by itself, because a datatype of absolute addresses may reach into several regions.
    all = true;
    RunCursor runs(*type.layout, static_cast<std::size_t>(target.count));
    for (Layout::Run run; all && all.value() && runs.next(run);) {
      all = attached(at + run.offset, at + run.offset + static_cast<Wide>(span_of(run.type, run.count)));
    }
  }
  if (!all) return all.status();
  if (!all.value()) {
    return Fault{MPI_ERR_RMA_RANGE,
                 fmt::format("{} elements at {:#x} reach beyond the memory that rank {} has attached (MPI 4.0 section "
                             "12.2.4)",
                             target.count, target.displacement, target.rank)};
  }
  origin_at = target.displacement - static_cast<std::int64_t>(Regions::kFirst);
  return {};
}

Outcome Operations::check_transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put,
                                   CheckedOperation& checked) {
  std::array<Side, 2> sides{
      {{"origin", origin.address, origin.count, origin.type}, {"target", nullptr, target.count, target.type}}};
  const auto& [here, there] = sides;
  if (Outcome o = check_sides(window_, target.rank, sides); !o || target.rank == MPI_PROC_NULL) return o;
  const std::size_t bytes = put ? here.bytes : there.bytes;
  if (Outcome o = check_fits(bytes, put ? there.bytes : here.bytes); !o) return o;
  std::int64_t at = 0;
  if (there.bytes > 0) {
    if (Outcome o = locate(target, *there.type, at); !o) return o;
  } else if (Outcome o = check_displacement(target.displacement); !o) {
    return o;
  }
  if (Outcome o = check_buffer(origin.address, *here.type, bytes, "origin"); !o) return o;
  new (&checked) CheckedOperation{.call = put ? Counted::kPut : Counted::kGet,
                                  .origin = origin,
                                  .compare = nullptr,
                                  .result = nullptr,
                                  .target = target,
                                  .origin_type = here.type,
                                  .result_type = nullptr,
                                  .target_type = there.type,
                                  .at = at,
                                  .bytes = bytes,
                                  .op = ReduceOp::kReplace,
                                  .element = BasicType::kByte,
                                  .reads_origin = put};
  return check_epoch(target.rank, put);
}

Outcome Operations::check_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target,
                                     MPI_Op op, CheckedOperation& checked) {
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
  std::array<Side, 3> sides;
  sides[0] = {"target", nullptr, target.count, target.type};
  std::size_t used = 1;
  const Side &to = sides[0], *from = nullptr, *into = nullptr;
  if (reads_origin) from = &(sides[used++] = {"origin", origin.address, origin.count, origin.type});
  if (result != nullptr) into = &(sides[used++] = {"result", result->address, result->count, result->type});
  const std::span<Side> all = std::span(sides).first(used);
  if (Outcome o = check_sides(window_, target.rank, all); !o || target.rank == MPI_PROC_NULL) return o;
  const std::size_t bytes = to.bytes, origin_bytes = from != nullptr ? from->bytes : bytes;
  if (Outcome o = check_fits(origin_bytes, bytes); !o) return o;
  if (into != nullptr) {
    // The fetch returns as many bytes as the target describes.
    if (Outcome o = check_fits(bytes, into->bytes); !o) return o;
    if (Outcome o = check_fits(bytes, origin_bytes); !o) return o;
  }
  if (bytes == 0) {
    if (Outcome o = check_displacement(target.displacement); !o) return o;
    return check_epoch(target.rank, reads_origin);
  }
  for (const Side& side : all.subspan(1)) {
    if (Outcome o = check_buffer(side.address, *side.type, std::min(side.bytes, bytes), side.whose); !o) return o;
  }

  const std::optional<BasicType> element = to.type->layout->uniform_type();
  if (!element) {
    return Fault{MPI_ERR_TYPE,
                 "the target datatype mixes basic types; an accumulate needs one (MPI 4.0 section 12.3.4)"};
  }
  for (const Side& side : all.subspan(1)) {
    if (side.type->layout->uniform_type() == element) continue;
    return Fault{MPI_ERR_TYPE, fmt::format("the {} datatype is not made of {} as the target's is; use one "
                                           "basic type (MPI 4.0 section 12.3.4)",
                                           side.whose, traits(*element).name)};
  }
  if (!allowed(*reduce, *element)) {
    return Fault{MPI_ERR_OP, fmt::format("{} is not defined for {}; use an operation that is (MPI 4.0 section 6.9.2)",
                                         farside::name(*reduce), traits(*element).name)};
  }
  std::int64_t at = 0;
  if (Outcome o = locate(target, *to.type, at); !o) return o;
  new (&checked) CheckedOperation{.call = result != nullptr ? Counted::kFetch : Counted::kAccumulate,
                                  .origin = origin,
                                  .compare = nullptr,
                                  .result = result,
                                  .target = target,
                                  .origin_type = from != nullptr ? from->type : to.type,
                                  .result_type = into != nullptr ? into->type : to.type,
                                  .target_type = to.type,
                                  .at = at,
                                  .bytes = origin_bytes == 0 ? 0 : bytes,
                                  .op = *reduce,
                                  .element = *element,
                                  .reads_origin = reads_origin};
  return check_epoch(target.rank, reads_origin);
}

Outcome Operations::check_fetch_and_op(MPI_Datatype type) {
  const Datatype* found = nullptr;
  if (Outcome o = find_type(type, "the", found); !o) return o;
  return found->basic ? Outcome()
                      : Outcome(Fault{MPI_ERR_TYPE, "the datatype must be a predefined one (MPI 4.0 section 12.3.4)"});
}

Outcome Operations::check_compare_and_swap(const void* origin, const void* compare, const LocalBuffer& result,
                                           const RemoteBuffer& target, CheckedOperation& checked) {
  if (target.rank == MPI_PROC_NULL) return {};
  if (Outcome o = window_.check_rank(target.rank); !o) return o;
  const Datatype* found = nullptr;
  if (Outcome o = find_type(target.type, "the", found); !o) return o;
  if (!found->basic || !can_compare_and_swap(*found->basic)) {
    return Fault{MPI_ERR_TYPE,
                 "the datatype must be a predefined integer, logical, multi-language type or byte "
                 "(MPI 4.0 section 12.3.4)"};
  }
  for (const auto& [address, whose] : {std::pair{origin, "origin"}, {compare, "compare"}, {result.address, "result"}}) {
    if (Outcome o = check_buffer(address, *found, found->size, whose); !o) return o;
  }
  std::int64_t at = 0;
  if (Outcome o = locate(target, *found, at); !o) return o;
  new (&checked) CheckedOperation{.call = Counted::kCompareAndSwap,
                                  .origin = {const_cast<void*>(origin), 1, target.type},
                                  .compare = compare,
                                  .result = &result,
                                  .target = target,
                                  .origin_type = found,
                                  .result_type = found,
                                  .target_type = found,
                                  .at = at,
                                  .bytes = found->size,
                                  .op = ReduceOp::kReplace,
                                  .element = *found->basic,
                                  .reads_origin = true};
  return check_epoch(target.rank, true);
}

Outcome Operations::begin_request(int rank, std::unique_ptr<Outstanding>& own) {
  if (rank == MPI_PROC_NULL) return {};
  if (Outcome o = window_.check_rank(rank); !o) return o;
  if (!window_.holds_in_stripe(rank)) {
    const auto held = window_.guard();
    if (const epochs::Violation v = window_.epoch.request_operation(rank)) return v;
  }
  Result<std::unique_ptr<Outstanding>> made = window_.space->route(rank).own_outstanding(rank);
  if (made) own = std::move(made.value());
  return made.status();
}

}  // namespace farside::pmpi
