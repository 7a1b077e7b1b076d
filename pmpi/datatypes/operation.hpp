// SPDX-License-Identifier: BSD-3-Clause
// One communication call (MPI 4.0 section 12.3) on its way from the entry point to a route: first its arguments, then
// also what Operations::check() finds of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <mpi.h>

#include "pmpi/datatypes/datatype.hpp"
#include "transport/base/statistics.hpp"
#include "transport/fabric/pending.hpp"

namespace farside::pmpi {

// An address by its offset in a buffer, where there need be no memory.
inline std::byte* byte_at(const void* buffer, std::ptrdiff_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(buffer) + static_cast<std::uintptr_t>(offset));
}

// Counts are 64 bits for the large-count calls.
struct LocalBuffer {
  void* address;
  std::int64_t count;
  MPI_Datatype type;
};
struct RemoteBuffer {
  int rank;
  MPI_Aint displacement;  // in units of the target's displacement unit
  std::int64_t count;
  MPI_Datatype type;
  // Of a call with a request: the counter of its operations, and the place for their number in FARSIDE_CHECK=strict.
  Pending* own = nullptr;
  std::uint64_t* watched = nullptr;
};

// The members that check() sets have no value before it: clearing them costs 40 ns.
struct Operation {
  // The parameters of MPI_Put and MPI_Get, MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op and
  // MPI_Compare_and_swap, in their order.
  Operation(Counted kind, const void* from, std::int64_t from_count, MPI_Datatype from_type, int rank,
            MPI_Aint displacement, std::int64_t target_count, MPI_Datatype target_type, MPI_Win window)
      : call(kind),
        origin{const_cast<void*>(from), from_count, from_type},
        target{rank, displacement, target_count, target_type},
        win(window) {}
  Operation(Counted kind, const void* from, std::int64_t from_count, MPI_Datatype from_type, int rank,
            MPI_Aint displacement, std::int64_t target_count, MPI_Datatype target_type, MPI_Op with, MPI_Win window)
      : Operation(kind, from, from_count, from_type, rank, displacement, target_count, target_type, window) {
    op = with;
  }
  Operation(Counted kind, const void* from, std::int64_t from_count, MPI_Datatype from_type, void* into,
            std::int64_t into_count, MPI_Datatype into_type, int rank, MPI_Aint displacement, std::int64_t target_count,
            MPI_Datatype target_type, MPI_Op with, MPI_Win window)
      : Operation(kind, from, from_count, from_type, rank, displacement, target_count, target_type, with, window) {
    result = {into, into_count, into_type};
  }
  Operation(Counted kind, const void* from, void* into, MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op with,
            MPI_Win window)
      : Operation(kind, from, 1, type, into, 1, type, rank, displacement, 1, type, with, window) {
    predefined_only = true;
  }
  Operation(Counted kind, const void* from, const void* with, void* into, MPI_Datatype type, int rank,
            MPI_Aint displacement, MPI_Win window)
      : Operation(kind, from, 1, type, rank, displacement, 1, type, window) {
    compare = with;
    result = {into, 1, type};
    predefined_only = true;
  }
  bool fetches() const { return call == Counted::kFetch || call == Counted::kCompareAndSwap; }

  Counted call;  // up to kCompareAndSwap
  LocalBuffer origin;
  LocalBuffer result{};  // if the call fetches()
  const void* compare = nullptr;
  RemoteBuffer target;
  MPI_Op op{};
  MPI_Win win;
  bool predefined_only = false;  // the datatype must be a predefined one
  bool notifies = false;         // a notified operation (window/notifications.hpp)

  // Valid after the check, if there is something to do (`bytes`).
  const Datatype *origin_type, *result_type, *target_type;
  std::int64_t at;    // byte offset of element 0 in the target's data; negative with a positive lower bound
  std::size_t bytes;  // 0: there is nothing to do
  ReduceOp reduce;
  BasicType element;
  bool reads_origin;
};

}  // namespace farside::pmpi
