// SPDX-License-Identifier: BSD-3-Clause
// What combines 64-bit integers, adapters or processors, is the same for rows and for single elements.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "accumulate/sections.hpp"

namespace accumulate {

// Half of the ranks add rows, also with gaps, and raise rows to a maximum; the others do the same with single elements
// in the same places at the same time, and increment them by compare-and-swap. Rank 0's own processor and those of its
// node may take part.
void integer_rows_and_elements(check::Memory memory) {
  constexpr int kCount = 60, kRows = 8, kSwaps = 10;
  constexpr MPI_Aint kMost = kCount;  // the maxima follow the sums
  Window window(memory, (kCount + kMost) * 8, 8);
  MPI_Datatype every_other = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(kCount / 2, 1, 2, MPI_INT64_T, &every_other));
  CHECK_MPI(MPI_Type_commit(&every_other));
  const std::vector<std::int64_t> ones(kCount, 1);
  std::vector<std::int64_t> values(kCount), fetched(kCount), last(kCount, -1);
  const auto value = [](int of_rank, int round, int k) { return std::int64_t{of_rank * 37 + round * 11 + k} % 101; };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRows; ++round) {
    for (int k = 0; k < kCount; ++k) values[static_cast<std::size_t>(k)] = value(rank, round, k);
    if (rank % 2 == 0) {
      CHECK_MPI(MPI_Get_accumulate(ones.data(), kCount, MPI_INT64_T, fetched.data(), kCount, MPI_INT64_T, 0, 0, kCount,
                                   MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(ones.data(), kCount / 2, MPI_INT64_T, 0, 0, 1, every_other, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(values.data(), kCount, MPI_INT64_T, 0, kMost, kCount, MPI_INT64_T, MPI_MAX, window));
    } else {
      for (int k = 0; k < kCount; ++k) {
        const auto at = static_cast<std::size_t>(k);
        CHECK_MPI(MPI_Fetch_and_op(&ones[at], &fetched[at], MPI_INT64_T, 0, k, MPI_SUM, window));
        CHECK_MPI(MPI_Accumulate(&values[at], 1, MPI_INT64_T, 0, kMost + k, 1, MPI_INT64_T, MPI_MAX, window));
      }
    }
    CHECK_MPI(MPI_Win_flush(0, window));
    for (std::size_t k = 0; k < kCount; ++k) CHECK(fetched[k] > last[k]);
    last = fetched;
  }
  for (int swaps = 0; rank % 2 == 1 && swaps < kSwaps;) {
    auto& seen = last[static_cast<std::size_t>(swaps)];
    const std::int64_t next = seen + 1;
    std::int64_t before = -1;
    CHECK_MPI(MPI_Compare_and_swap(&next, &seen, &before, MPI_INT64_T, 0, swaps, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    if (before == seen) ++swaps;
    seen = before;
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    const int with_rows = (size + 1) / 2, with_elements = size / 2;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    for (int k = 0; k < kCount; ++k) {
      const int by_rows = k % 2 == 0 ? 2 * kRows : kRows;
      const int by_elements = kRows + (k < kSwaps ? 1 : 0);
      CHECK_EQ(window.as<std::int64_t>()[k], std::int64_t{by_rows * with_rows + by_elements * with_elements});
      std::int64_t most = 0;
      for (int i = 0; i < size * kRows; ++i) most = std::max(most, value(i / kRows, i % kRows, k));
      CHECK_EQ(window.as<std::int64_t>()[kMost + k], most);
    }
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Type_free(&every_other));
}

}  // namespace accumulate
