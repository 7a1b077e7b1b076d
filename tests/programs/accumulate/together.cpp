// SPDX-License-Identifier: BSD-3-Clause
// Many ranks on one location lose no update.
#include <complex>

#include "accumulate/sections.hpp"

namespace accumulate {
namespace {

constexpr int kRounds = 200;

// Of MPI_MINLOC and MPI_MAXLOC.
template <class T>
struct Pair {
  T value;
  int index;
  bool operator==(const Pair&) const = default;
};

template <class T>
struct Local {
  const T& read(MPI_Win window, const T* at) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
    value = *at;
    CHECK_MPI(MPI_Win_unlock(rank, window));
    return value;
  }
  T value;
};

// All ranks add to one counter at every rank, by all three calls that can; each value is fetched once.
template <class T>
void counter(check::Memory memory, MPI_Datatype type) {
  Window window(memory, 3 * sizeof(T), sizeof(T));
  const T one{1};
  std::vector<double> fetched;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const int target = round % size;
    T unused[2];
    T before{0};
    CHECK_MPI(MPI_Accumulate(&one, 1, type, target, 0, 1, type, MPI_SUM, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &unused[0], type, target, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Get_accumulate(&one, 1, type, &unused[1], 1, type, target, 0, 1, type, MPI_SUM, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &before, type, 0, 1, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    fetched.push_back(static_cast<double>(before));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  int rounds = 0;
  for (int round = 0; round < kRounds; ++round) rounds += round % size == rank;
  CHECK_EQ(Local<T>().read(window, window.as<T>()), static_cast<T>(3 * rounds * size));
  for (std::size_t i = 1; i < fetched.size(); ++i) CHECK(fetched[i - 1] < fetched[i]);
  std::vector<double> all(fetched.size() * static_cast<std::size_t>(size));
  CHECK_MPI(MPI_Allgather(fetched.data(), kRounds, MPI_DOUBLE, all.data(), kRounds, MPI_DOUBLE, MPI_COMM_WORLD));
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK_EQ(all[i], static_cast<double>(i));
}

}  // namespace

void counters(check::Memory memory) {
  counter<std::int16_t>(memory, MPI_INT16_T);
  counter<std::int32_t>(memory, MPI_INT32_T);
  counter<std::uint64_t>(memory, MPI_UINT64_T);
  counter<double>(memory, MPI_DOUBLE);
  counter<long double>(memory, MPI_LONG_DOUBLE);
}

// All ranks increment one counter, alternately by compare-and-swap and by fetch_and_op.
void swap_counter(check::Memory memory) {
  Window window(memory, 8, 8);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  const std::int64_t one = 1;
  std::int64_t seen = 0;
  for (int round = 0; round < kRounds; ++round) {
    if ((round + rank) % 2 == 0) {
      std::int64_t before = 0;
      CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(0, window));
      continue;
    }
    for (;;) {
      const std::int64_t next = seen + 1;
      std::int64_t before = -1;
      CHECK_MPI(MPI_Compare_and_swap(&next, &seen, &before, MPI_INT64_T, 0, 0, window));
      CHECK_MPI(MPI_Win_flush(0, window));
      const bool swapped = before == seen;
      CHECK(before >= seen);
      seen = swapped ? next : before;
      if (swapped) break;
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) CHECK_EQ(Local<std::int64_t>().read(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// The smallest and the largest value with their index, a long double sum that no double can hold, and a complex
// product, updated by all ranks at once. None of them has a CPU or NIC atomic.
void without_an_atomic(check::Memory memory) {
  struct Place {
    Pair<long double> least;
    Pair<double> most;
    long double sum;
    std::complex<double> product;
  };
  Window window(memory, sizeof(Place), 1);
  if (rank == 0) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    *window.as<Place>() = {{1e9L, -1}, {-1e9, -1}, 0x1p63L, {1, 0}};
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const Pair<long double> low{static_cast<long double>((round * 37 + rank * 11) % 101), round * size + rank};
    const Pair<double> high{static_cast<double>((round * 37 + rank * 11) % 101), round * size + rank};
    const long double one = 1;
    const std::complex<double> turn{0, 1};
    CHECK_MPI(MPI_Accumulate(&low, 1, MPI_LONG_DOUBLE_INT, 0, offsetof(Place, least), 1, MPI_LONG_DOUBLE_INT,
                             MPI_MINLOC, window));
    CHECK_MPI(
        MPI_Accumulate(&high, 1, MPI_DOUBLE_INT, 0, offsetof(Place, most), 1, MPI_DOUBLE_INT, MPI_MAXLOC, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_LONG_DOUBLE, 0, offsetof(Place, sum), 1, MPI_LONG_DOUBLE, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(&turn, 1, MPI_C_DOUBLE_COMPLEX, 0, offsetof(Place, product), 1, MPI_C_DOUBLE_COMPLEX,
                             MPI_PROD, window));
    CHECK_MPI(MPI_Win_flush_local(0, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank != 0) return;
  Pair<long double> least{1e9L, -1};
  Pair<double> most{-1e9, -1};
  for (int each = 0; each < size; ++each) {
    for (int round = 0; round < kRounds; ++round) {
      const int value = (round * 37 + each * 11) % 101;
      const int index = round * size + each;
      if (value < least.value || (value == least.value && index < least.index))
        least = {static_cast<long double>(value), index};
      if (value > most.value || (value == most.value && index < most.index)) most = {static_cast<double>(value), index};
    }
  }
  const Place place = Local<Place>().read(window, window.as<Place>());
  CHECK(place.least == least);
  CHECK(place.most == most);
  CHECK_EQ(place.sum, 0x1p63L + kRounds * size);
  // kRounds is a multiple of four, so the quarter turns end at the start.
  CHECK_EQ(place.product, (std::complex<double>{1, 0}));
}

// The standard guarantees atomicity per element. Programs rely on more: linked lists in windows exchange pointers of
// rank and address as an array of MPI_BYTE.
void whole_structures(check::Memory memory) {
  struct Pointer {
    std::uint64_t rank;
    std::uint64_t address;
  };
  constexpr int kBytes = sizeof(Pointer);
  const auto address_of = [](std::uint64_t stamp) { return stamp * 0x9e3779b97f4a7c15U; };
  Window window(memory, kBytes, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t stamp =
        static_cast<std::uint64_t>(round) * static_cast<std::uint64_t>(size) + static_cast<std::uint64_t>(rank) + 1;
    const Pointer mine{stamp, address_of(stamp)};
    CHECK_MPI(MPI_Accumulate(&mine, kBytes, MPI_BYTE, 0, 0, kBytes, MPI_BYTE, MPI_REPLACE, window));
    Pointer seen{~std::uint64_t{0}, 0};
    CHECK_MPI(
        MPI_Get_accumulate(nullptr, 0, MPI_BYTE, &seen, kBytes, MPI_BYTE, 0, 0, kBytes, MPI_BYTE, MPI_NO_OP, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_EQ(seen.address, address_of(seen.rank));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

}  // namespace accumulate
