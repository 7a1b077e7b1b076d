// SPDX-License-Identifier: BSD-3-Clause
// Communication of a window (MPI 4.0 section 12.3). A call is a check of its arguments and of the epoch, which changes
// nothing but the epoch state, and the operation. The try_ functions are the fast path, inline in the entry point: with
// one predefined datatype without gaps, in an epoch that allows it, an operation on a mapped target is a load or a
// store. Each condition there is a condition of the check, or stricter: false means that nothing has changed, and the
// slow path executes or refuses the call. They make no calls if they succeed. always_inline: without it the compiler
// stops inlining them as soon as they grow a little, and a call costs a fifth of their time.
//
// Thread safety: that of WindowState. Errors: the MPI error class in the Fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <mpi.h>

#include "pmpi/datatypes/operation.hpp"
#include "pmpi/window/window_state.hpp"
#include "transport/node/device_memory.hpp"

namespace farside::pmpi {

class Operations {
 public:
  explicit Operations(WindowState& window) : window_(window) {}

  bool try_put(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_get(const LocalBuffer& origin, const RemoteBuffer& target);
  bool try_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  bool try_fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                        MPI_Op op);
  [[gnu::always_inline]] bool try_compare_and_swap(const void* origin, const void* compare, void* result,
                                                   MPI_Datatype type, int rank, MPI_Aint displacement);

  // Checks whether the operation is valid and its epoch allows it, and fills in what execute() needs.
  Status check(Operation& operation);
  // Precondition: there is something to do.
  Status execute(const Operation& operation);
  // Checks and executes a put or get with the most frequent arguments. Nothing, if check() must check them.
  // Precondition: is_usable(operation.origin.address).
  std::optional<Status> transfer_plain(const Operation& operation);

  // The request-based calls: begin_request() checks whether they are allowed now and makes the counter of the operation
  // (null if the operation is complete when it returns); abandon_request() follows for a request that was not made, or
  // that the program has freed.
  Status begin_request(int rank, std::unique_ptr<Pending>& own);
  void abandon_request(int rank, std::unique_ptr<Pending> own) {
    window_.space->route(rank).abandon(rank, std::move(own));
  }

 private:
  // Static, since it is not inlined: the entry point need not put the view into memory.
  static bool try_combine(WindowState& window, const void* origin, void* result, std::int64_t count, MPI_Datatype type,
                          int rank, MPI_Aint displacement, MPI_Op op);
  // `bytes` bytes at a displacement in a mapped target, or null if an operation may not access them on the fast path.
  struct FastPlace {
    const NodeTarget* target;
    std::byte* at;
  };
  [[gnu::always_inline]] FastPlace fast_place(int rank, MPI_Aint displacement, std::size_t bytes) const;
  Access access(int rank) const;
  // Computes the offset of element 0 in the target's data, or a range fault if the elements are not within them.
  Status locate(Operation& operation) const;

  // Whether an epoch of a fence or start allows operations on this rank; the rank then awaits the end of the epoch.
  // Also false in an epoch in which some rank has asserted MPI_MODE_NOPUT.
  bool in_active_epoch(int rank) const {
    return window_.epoch.allows_fast(epochs::Call::kOperation, rank) &&
           !window_.epoch.allows_fast(epochs::Call::kFlush, rank);
  }
  Status move_bytes(const Operation& operation, std::uint64_t offset, std::size_t bytes);
  Status move(const Operation& operation);
  template <class CommonFragments, class Part>
  Status by_parts(const Operation& operation, const Layout& from, std::size_t count, Pending* own, Part&& part);
  Status combine(const Operation& operation);
  Status combine_layouts(const Operation& operation, const std::byte* origin, std::byte* fetched, const Layout& layout,
                         std::size_t count);

  WindowState& window_;
};

// The size of `count` contiguous elements, or 0 if the type is not predefined or has gaps.
inline std::size_t plain_bytes(MPI_Datatype type, std::int64_t count) {
  if (static_cast<std::uint64_t>(count) >> 48 != 0) return 0;  // negative, or so large that the product may overflow
  return static_cast<std::size_t>(count) * predefined_table.plain_size(type);
}

// Whether the address is not null and its memory is known to be accessible to the CPU.
[[gnu::always_inline]] inline bool is_usable(const void* address) {
  return address != nullptr && (!DeviceMemory::possible() || DeviceMemory::is_known_host(address));
}

// Whether two buffers of so many bytes, at least one, have bytes in common.
inline bool overlap(const void* one, const void* other, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(one) - reinterpret_cast<std::uintptr_t>(other) + (bytes - 1) < 2 * bytes - 1;
}

inline Operations::FastPlace Operations::fast_place(int rank, MPI_Aint displacement, std::size_t bytes) const {
  if (bytes == 0 || !(window_.epoch.allows_fast(epochs::Call::kOperation, rank) || window_.holds_in_stripe(rank)))
    return {};
  const NodeTarget* target = nullptr;
  if (window_.fast_targets.contains(rank)) [[likely]] {
    target = &window_.fast_targets[rank];
  } else {
    target = window_.strict == nullptr ? window_.space->fast_target(rank) : nullptr;
    if (target == nullptr) return {};
  }
  std::byte* const data = target->data;
  if (data == nullptr) return {};
  std::int64_t offset = 0;
  if (__builtin_mul_overflow(std::int64_t{displacement}, std::int64_t{target->unit}, &offset)) return {};
  const auto at = static_cast<std::uint64_t>(offset);  // beyond any memory, if the displacement is negative
  if (at > target->bytes || bytes > target->bytes - at) return {};
  return {target, data + at};
}

[[gnu::always_inline]] inline bool Operations::try_put(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  const FastPlace to = fast_place(target.rank, target.displacement, bytes);
  if (to.at == nullptr || !is_usable(origin.address)) return false;
  window_.space->mapped_route().put_at(*to.target, to.at, origin.address, bytes);
  return true;
}

[[gnu::always_inline]] inline bool Operations::try_get(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  const FastPlace from = fast_place(target.rank, target.displacement, bytes);
  if (from.at == nullptr || !is_usable(origin.address)) return false;
  window_.space->mapped_route().get_at(*from.target, from.at, origin.address, bytes);
  return true;
}

// An exclusive lock excludes all other processes, unless it was locked with MPI_MODE_NOCHECK. It does not exclude other
// threads of this process, nor operations without a lock that are executed anyway.
inline Access Operations::access(int rank) const {
  const auto& locks = window_.locks.locks();
  const bool alone = window_.trusts_locks && !locks.empty() && locks.back().target == rank &&
                     locks.back().needs_release && locks.back().type == epochs::LockType::kExclusive;
  return alone ? Access::kAlone : Access::kShared;
}

inline bool Operations::try_combine(WindowState& window, const void* origin, void* result, std::int64_t count,
                                    MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op op) {
  const Datatype* found = predefined_table.find(type);
  const std::optional<ReduceOp> reduce = find_reduce_op(op);
  if (found == nullptr || !found->basic || !reduce || !allowed(*reduce, *found->basic)) return false;
  if (result == nullptr && *reduce == ReduceOp::kNoOp) return false;
  const std::size_t bytes = plain_bytes(type, count);
  const Operations operations(window);
  const FastPlace to = operations.fast_place(rank, displacement, bytes);
  if (to.at == nullptr || (*reduce != ReduceOp::kNoOp && !is_usable(origin))) return false;
  const Access among = operations.access(rank);
  const auto elements = static_cast<std::size_t>(count);
  if (window.space->mapped_route().try_add_at(*to.target, to.at, *reduce, *found->basic, origin, result, elements,
                                              among))
    return true;
  if (result != nullptr && overlap(origin, result, bytes)) [[unlikely]]
    return false;
  window.space->mapped_route().accumulate_at(*to.target, to.at, *reduce, *found->basic, origin, result, elements,
                                             among);
  return true;
}

inline bool Operations::try_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target,
                                       MPI_Op op) {
  const auto as_target = [&](const LocalBuffer& buffer) {
    return buffer.type == target.type && buffer.count == target.count;
  };
  if (!as_target(origin) || (result != nullptr && (!as_target(*result) || !is_usable(result->address)))) return false;
  return try_combine(window_, origin.address, result != nullptr ? result->address : nullptr, target.count, target.type,
                     target.rank, target.displacement, op);
}

inline bool Operations::try_fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank,
                                         MPI_Aint displacement, MPI_Op op) {
  return is_usable(result) && try_combine(window_, origin, result, 1, type, rank, displacement, op);
}

inline bool Operations::try_compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type,
                                             int rank, MPI_Aint displacement) {
  const Datatype* found = predefined_table.find(type);
  if (found == nullptr || !found->basic || !can_compare_and_swap(*found->basic)) return false;
  const FastPlace to = fast_place(rank, displacement, plain_bytes(type, 1));
  if (to.at == nullptr || !is_usable(origin) || !is_usable(compare) || !is_usable(result)) return false;
  window_.space->mapped_route().compare_and_swap_at(*to.target, to.at, *found->basic, origin, compare, result);
  return true;
}

}  // namespace farside::pmpi
