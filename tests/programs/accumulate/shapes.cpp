// SPDX-License-Identifier: BSD-3-Clause
// Large, ordered and strided accumulates; accumulates of different sizes on common locations, and accumulates under an
// exclusive lock.
#include "accumulate/sections.hpp"

namespace accumulate {

void large_counts(check::Memory memory) {
  constexpr int kCount = 100000;
  Window window(memory, kCount * sizeof(double), sizeof(double));
  std::vector<double> values(kCount);
  std::vector<double> before(kCount);
  for (int i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = i % 1000 + rank;
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Accumulate(values.data(), kCount, MPI_DOUBLE, target, 0, kCount, MPI_DOUBLE, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Get_accumulate(values.data(), kCount, MPI_DOUBLE, before.data(), kCount, MPI_DOUBLE, (rank + 1) % size,
                               0, kCount, MPI_DOUBLE, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  const int previous = (rank + size - 1) % size;
  for (int i = 0; i < kCount; ++i) {
    const double base = i % 1000;
    CHECK_EQ(window.as<double>()[i], size * base + size * (size - 1) / 2.0 + base + previous);
    // At the next rank this rank's own sum came first (accumulates of one origin are ordered); sums of others may have.
    const double seen = before[static_cast<std::size_t>(i)];
    CHECK(seen >= base + rank);
    CHECK(seen <= size * base + size * (size - 1) / 2.0);
  }
}

namespace {

// Long rows, which may travel in fragments, and single elements update the same locations in shared epochs.
template <class T>
void large_and_small(check::Memory memory, MPI_Datatype type) {
  constexpr int kCount = 5000;
  constexpr int kRows = 40;
  constexpr int kSingles = 2000;
  const auto place = [](int k) { return k * 7 % kCount; };
  Window window(memory, kCount * sizeof(T), sizeof(T));
  const std::vector<T> ones(kCount, T{1});
  std::vector<T> seen(kSingles);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (rank % 2 == 0) {
    for (int i = 0; i < kRows; ++i) {
      CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, 0, kCount, type, MPI_SUM, window));
    }
  } else {
    for (int k = 0; k < kSingles; ++k) {
      CHECK_MPI(MPI_Fetch_and_op(ones.data(), &seen[static_cast<std::size_t>(k)], type, 0, place(k), MPI_SUM, window));
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    std::vector<int> expected(kCount, kRows * ((size + 1) / 2));
    for (int k = 0; k < kSingles; ++k) expected[static_cast<std::size_t>(place(k))] += size / 2;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    for (int i = 0; i < kCount; ++i) {
      CHECK_EQ(window.as<T>()[i], static_cast<T>(expected[static_cast<std::size_t>(i)]));
    }
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace

void rows_and_elements(check::Memory memory) {
  large_and_small<double>(memory, MPI_DOUBLE);
  large_and_small<float>(memory, MPI_FLOAT);
  large_and_small<int>(memory, MPI_INT);
  large_and_small<std::int64_t>(memory, MPI_INT64_T);
}

// All ranks increment single integers, and some begin to add long rows meanwhile, dense and strided. Several windows,
// because each window has only one such begin.
void rows_begin(check::Memory memory) {
  constexpr int kCount = 64;
  constexpr int kSingles = 150;
  constexpr int kRows = 20;
  constexpr int kWindows = 15;
  MPI_Datatype every_other = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(kCount / 2, 1, 2, MPI_INT64_T, &every_other));
  CHECK_MPI(MPI_Type_commit(&every_other));
  const std::vector<std::int64_t> ones(kCount, 1);
  for (int round = 0; round < kWindows; ++round) {
    Window window(memory, kCount * sizeof(std::int64_t), sizeof(std::int64_t));
    CHECK_MPI(MPI_Win_lock_all(0, window));
    std::int64_t before = -1;
    std::int64_t last = -1;
    for (int i = 0; i < kSingles; ++i) {
      CHECK_MPI(MPI_Fetch_and_op(ones.data(), &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(ones.data(), 1, MPI_INT64_T, 0, i % kCount, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(0, window));
      CHECK(before > last);
      last = before;
      const int row = i - kSingles / 2;
      if (rank % 2 != round % 2 || row < 0 || row >= kRows) continue;
      CHECK_MPI(MPI_Accumulate(ones.data(), kCount, MPI_INT64_T, 0, 0, kCount, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(ones.data(), kCount / 2, MPI_INT64_T, 0, 0, 1, every_other, MPI_SUM, window));
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
      const int with_rows = round % 2 == 0 ? (size + 1) / 2 : size / 2;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
      for (int k = 0; k < kCount; ++k) {
        const int singles = kSingles / kCount + (k < kSingles % kCount ? 1 : 0) + (k == 0 ? kSingles : 0);
        const int rows = k % 2 == 0 ? 2 * kRows : kRows;
        CHECK_EQ(window.as<std::int64_t>()[k], std::int64_t{singles} * size + std::int64_t{rows} * with_rows);
      }
      CHECK_MPI(MPI_Win_unlock(0, window));
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Type_free(&every_other));
}

namespace {

// Under an exclusive lock no other rank accesses the target. Accumulates may be faster then, but the results must be
// the same. A shared lock beside the exclusive one, or after it, gives no such guarantee.
template <class T>
void alone(check::Memory memory, MPI_Datatype type) {
  constexpr int kCount = 70;
  constexpr int kTimes = 200;
  Window window(memory, 2 * kCount * sizeof(T), sizeof(T));
  const int own = size > 1 ? size - 1 : 0;  // all ranks lock it exclusively; rank 0 is locked shared
  const std::vector<T> ones(kCount, T{1});
  std::vector<T> before(kCount);
  T last{};
  for (int i = 0; i < kTimes; ++i) {
    if (own != 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, own, 0, window));
    CHECK_MPI(MPI_Get_accumulate(ones.data(), kCount, type, before.data(), kCount, type, own, 0, kCount, type, MPI_SUM,
                                 window));
    CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, own, kCount, kCount, type, MPI_SUM, window));
    if (own != 0) CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, 0, kCount, type, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(own, window));
    CHECK(i == 0 || before[0] > last);
    for (const T value : before) CHECK_EQ(value, before[0]);
    last = before[0];
    CHECK_MPI(MPI_Win_unlock(own, window));
    if (own != 0) CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
  for (int i = 0; own != 0 && i < kTimes; ++i) {
    CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, kCount, kCount, type, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_unlock(0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0 || rank == own) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    for (int i = 0; i < 2 * kCount; ++i) CHECK_EQ(window.as<T>()[i], static_cast<T>(kTimes * size));
    CHECK_MPI(MPI_Win_unlock(rank, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace

void exclusive_locks(check::Memory memory) {
  alone<double>(memory, MPI_DOUBLE);
  alone<std::int64_t>(memory, MPI_INT64_T);
  alone<std::int16_t>(memory, MPI_INT16_T);
  alone<long double>(memory, MPI_LONG_DOUBLE);
}

// The default of accumulate_ordering: reads and writes of one origin to one location take effect in the order of the
// calls, whatever their sizes.
void ordered(check::Memory memory) {
  constexpr int kCount = 5000;
  Window window(memory, kCount * sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  std::vector<std::int64_t> large(kCount);
  std::vector<std::int64_t> seen(60);
  std::array<std::int64_t, 60> small{};
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  for (std::size_t i = 0; i < seen.size(); i += 3) {
    const auto step = static_cast<std::int64_t>(i);
    std::fill(large.begin(), large.end(), step);
    CHECK_MPI(MPI_Accumulate(large.data(), kCount, MPI_INT64_T, target, 0, kCount, MPI_INT64_T, MPI_REPLACE, window));
    CHECK_MPI(MPI_Fetch_and_op(nullptr, &seen[i], MPI_INT64_T, target, kCount - 1, MPI_NO_OP, window));
    small[i] = 1000 + step;
    CHECK_MPI(MPI_Accumulate(&small[i], 1, MPI_INT64_T, target, kCount - 1, 1, MPI_INT64_T, MPI_REPLACE, window));
    CHECK_MPI(MPI_Get_accumulate(nullptr, 0, MPI_INT64_T, &seen[i + 1], 1, MPI_INT64_T, target, kCount - 1, 1,
                                 MPI_INT64_T, MPI_NO_OP, window));
    small[i + 1] = 2000 + step;
    CHECK_MPI(MPI_Fetch_and_op(&small[i + 1], &seen[i + 2], MPI_INT64_T, target, kCount - 1, MPI_REPLACE, window));
    CHECK_MPI(MPI_Win_flush_local(target, window));
  }
  CHECK_MPI(MPI_Win_unlock(target, window));
  for (std::size_t i = 0; i < seen.size(); i += 3) {
    const auto step = static_cast<std::int64_t>(i);
    CHECK_EQ(seen[i], step);
    CHECK_EQ(seen[i + 1], 1000 + step);
    CHECK_EQ(seen[i + 2], 1000 + step);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const auto last = static_cast<std::int64_t>(seen.size()) - 3;
  CHECK_EQ(window.as<std::int64_t>()[kCount - 1], 2000 + last);
  for (int i = 0; i < kCount - 1; ++i) CHECK_EQ(window.as<std::int64_t>()[i], last);
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

// An origin with less data than the target describes combines the data that it has.
void shorter_origin(check::Memory memory) {
  constexpr int kInts = 24;
  Window window(memory, kInts * sizeof(int), sizeof(int));
  MPI_Datatype every_second;
  CHECK_MPI(MPI_Type_vector(6, 1, 2, MPI_INT, &every_second));
  CHECK_MPI(MPI_Type_commit(&every_second));
  const int out[] = {1, 2, 3};
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Accumulate(out, 2, MPI_INT, target, 0, 8, MPI_INT, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(out, 3, MPI_INT, target, 8, 1, every_second, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(out, 0, MPI_INT, target, 20, 4, MPI_INT, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < kInts; ++i) {
    int expected = 0;
    if (i < 2) expected = size * out[i];
    if (i == 8 || i == 10 || i == 12) expected = size * out[(i - 8) / 2];
    CHECK_EQ(window.as<int>()[i], expected);
  }
  CHECK_MPI(MPI_Type_free(&every_second));
}

namespace {

// The operands are those that were in the buffer at the call. `by`: from the origin buffer to the result buffer.
template <class T>
void fetch_into_operands(const Window& window, MPI_Datatype type, int count, int by) {
  constexpr int kRoom = 5;
  std::vector<T> both(static_cast<std::size_t>(count + 2 * kRoom));
  T* const origin = both.data() + kRoom;
  const int target = (rank + 1) % size;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  const std::vector<T> first(static_cast<std::size_t>(count), T{100});
  CHECK_MPI(MPI_Accumulate(first.data(), count, type, target, 0, count, type, MPI_REPLACE, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  for (int i = 0; i < count; ++i) origin[i] = static_cast<T>(1 + i % 10);
  if (count == 1) {
    CHECK_MPI(MPI_Fetch_and_op(origin, origin + by, type, target, 0, MPI_SUM, window));
  } else {
    CHECK_MPI(
        MPI_Get_accumulate(origin, count, type, origin + by, count, type, target, 0, count, type, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_flush(target, window));
  for (int i = 0; i < count; ++i) CHECK_EQ(origin[by + i], T{100});
  std::vector<T> sums(static_cast<std::size_t>(count));
  CHECK_MPI(MPI_Get(sums.data(), count, type, target, 0, count, type, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
  for (int i = 0; i < count; ++i) CHECK_EQ(sums[static_cast<std::size_t>(i)], static_cast<T>(101 + i % 10));
}

template <class T>
void swap_into_operand(const Window& window, MPI_Datatype type) {
  const int target = (rank + 1) % size;
  const T first{100}, other{7};
  T both{99}, result{0};
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  CHECK_MPI(MPI_Accumulate(&first, 1, type, target, 0, 1, type, MPI_REPLACE, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_MPI(MPI_Compare_and_swap(&other, &both, &both, type, target, 0, window));  // does not swap
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_EQ(both, first);
  both = other;
  CHECK_MPI(MPI_Compare_and_swap(&both, &first, &both, type, target, 0, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_EQ(both, first);
  CHECK_MPI(MPI_Fetch_and_op(nullptr, &result, type, target, 0, MPI_NO_OP, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
  CHECK_EQ(result, other);
}

}  // namespace

// An error of the program, which the runtimes carry out as it was meant.
void one_buffer(check::Memory memory) {
  constexpr int kCount = 20000;
  const Window window(memory, kCount * sizeof(double), 1);
  for (const int count : {1, 7, 100, kCount}) {
    for (const int by : {0, 1, -1, 5}) {
      if (count == 1 && by != 0) continue;
      fetch_into_operands<double>(window, MPI_DOUBLE, count, by);
      fetch_into_operands<std::int64_t>(window, MPI_INT64_T, count, by);
      fetch_into_operands<signed char>(window, MPI_SIGNED_CHAR, count, by);
    }
  }
  swap_into_operand<std::int64_t>(window, MPI_INT64_T);
  swap_into_operand<signed char>(window, MPI_SIGNED_CHAR);
}

}  // namespace accumulate
