// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the sections of `passive`.
#pragma once

#include "../check.hpp"

namespace passive {

inline int rank;
inline int size;

inline void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

inline std::int64_t read_own(MPI_Win window, const std::int64_t* at) {
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const std::int64_t value = *at;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  return value;
}

// Get, add, put: correct only if the lock excludes all other ranks, and if unlock has made the put visible.
inline void add_one(MPI_Win window, int target, MPI_Aint at) {
  std::int64_t value = -1;
  CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  ++value;
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush_local(target, window));  // `value` goes out of scope
}

}  // namespace passive
