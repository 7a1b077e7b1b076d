// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of `faults` do, most of it in rounds.
#pragma once

#include <chrono>

#include "../check.hpp"

namespace faults {

using Clock = std::chrono::steady_clock;
inline constexpr int kVictim = 1;

inline void lock_each(MPI_Win window, int round) {
  const int target = round % check::size();
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
  CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, 4 + check::rank(), 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
}

inline void put_to_all(MPI_Win window, int) {
  static const std::vector<std::int64_t> words(4096, 7);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int target = 0; target < check::size(); ++target) {
    CHECK_MPI(MPI_Put(words.data(), 4096, MPI_INT64_T, target, 64 + 4096 * check::rank(), 4096, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

inline void accumulate_to_all(MPI_Win window, int) {
  static const std::vector<long double> ones(64, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int target = 0; target < check::size(); ++target) {
    CHECK_MPI(MPI_Accumulate(ones.data(), 64, MPI_LONG_DOUBLE, target, 64, 64, MPI_LONG_DOUBLE, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

inline void fence(MPI_Win window, int round) {
  const std::int64_t number = round;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
}

inline constexpr struct {
  const char* name;
  void (*round)(MPI_Win, int);
} kWorks[] = {{"lock", lock_each}, {"put", put_to_all}, {"accumulate", accumulate_to_all}, {"fence", fence}};

inline constexpr MPI_Aint kBytes = 8 * (64 + 4096 * 4);

}  // namespace faults
