// SPDX-License-Identifier: BSD-3-Clause
// MPI_Compare_and_swap on every integer type.
#include <limits>
#include <memory>

#include "accumulate/sections.hpp"

namespace accumulate {
namespace {

// One matching and one failing swap between all pairs of ranks, also with the largest and smallest values.
template <class T>
void swaps(check::Memory memory, MPI_Datatype type) {
  Window window(memory, static_cast<MPI_Aint>(sizeof(T)) * 2 * size, sizeof(T));
  T* mine = window.as<T>();
  const T high = std::numeric_limits<T>::max();
  const T low = std::numeric_limits<T>::min();
  for (int i = 0; i < 2 * size; ++i) mine[i] = high;
  const auto old = std::make_unique<T[]>(static_cast<unsigned>(2 * size));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    const T other = static_cast<T>(high - 1);
    T* results = old.get() + 2 * target;
    CHECK_MPI(MPI_Compare_and_swap(&low, &high, &results[0], type, target, 2 * rank, window));
    CHECK_MPI(MPI_Compare_and_swap(&low, &other, &results[1], type, target, 2 * rank + 1, window));
    // The program may not change the operands of compare_and_swap until the epoch ends.
    CHECK_MPI(MPI_Win_fence(0, window));
  }
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(mine[2 * origin], low);
    CHECK_EQ(mine[2 * origin + 1], high);
  }
  for (int i = 0; i < 2 * size; ++i) CHECK_EQ(old[static_cast<std::size_t>(i)], high);
}

}  // namespace

void every_swap(check::Memory memory) {
  swaps<signed char>(memory, MPI_SIGNED_CHAR);
  swaps<unsigned char>(memory, MPI_UNSIGNED_CHAR);
  swaps<short>(memory, MPI_SHORT);
  swaps<unsigned short>(memory, MPI_UNSIGNED_SHORT);
  swaps<int>(memory, MPI_INT);
  swaps<unsigned>(memory, MPI_UNSIGNED);
  swaps<long>(memory, MPI_LONG);
  swaps<unsigned long>(memory, MPI_UNSIGNED_LONG);
  swaps<long long>(memory, MPI_LONG_LONG);
  swaps<unsigned long long>(memory, MPI_UNSIGNED_LONG_LONG);
  swaps<std::int8_t>(memory, MPI_INT8_T);
  swaps<std::int16_t>(memory, MPI_INT16_T);
  swaps<std::int32_t>(memory, MPI_INT32_T);
  swaps<std::int64_t>(memory, MPI_INT64_T);
  swaps<std::uint8_t>(memory, MPI_UINT8_T);
  swaps<std::uint16_t>(memory, MPI_UINT16_T);
  swaps<std::uint32_t>(memory, MPI_UINT32_T);
  swaps<std::uint64_t>(memory, MPI_UINT64_T);
  swaps<unsigned char>(memory, MPI_BYTE);
  swaps<MPI_Aint>(memory, MPI_AINT);
  swaps<MPI_Offset>(memory, MPI_OFFSET);
  swaps<MPI_Count>(memory, MPI_COUNT);
  swaps<bool>(memory, MPI_C_BOOL);
}

}  // namespace accumulate
