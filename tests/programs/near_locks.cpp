// SPDX-License-Identifier: BSD-3-Clause
// Exclusive locks of a few targets that ranks of several hosts contend for, with shared locks and lock_alls among them.
// Near hand-offs must not break the exclusion (the statistics say whether there were any). Argument: the value of the
// key farside_near_hand_offs; without one it is not set.
#include <cstdint>
#include <string>

#include "check.hpp"

namespace {

constexpr int kRounds = 200;

// An increment that loses counts if two ranks hold the lock.
void increment(MPI_Win window, int target) {
  std::int64_t value = 0;
  CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  ++value;
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int rank = check::rank(), ranks = check::size();
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  const std::string key = "farside_near_hand_offs";
  if (argc > 1) CHECK_MPI(MPI_Info_set(info, key.c_str(), argv[1]));
  std::int64_t* counter = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_allocate(sizeof *counter, sizeof *counter, info, MPI_COMM_WORLD, &counter, &window));
  CHECK_MPI(MPI_Info_free(&info));
  *counter = 0;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  check::section("one target");
  for (int i = 0; i < kRounds; ++i) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    increment(window, 0);
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
  std::int64_t sum = 0;
  CHECK_MPI(MPI_Get(&sum, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(0, window));
  CHECK_EQ(sum, static_cast<std::int64_t>(ranks) * kRounds);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  check::section("all targets, inner locks, readers and lock_alls");
  for (int i = 0; i < kRounds; ++i) {
    const int target = i % ranks;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    increment(window, target);
    const bool inner = i % 5 == 0 && target + 1 < ranks;  // in the order of ranks
    if (inner) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target + 1, 0, window));
      increment(window, target + 1);
    }
    CHECK_MPI(MPI_Win_unlock(target, window));
    if (inner) CHECK_MPI(MPI_Win_unlock(target + 1, window));
    if ((i + rank) % 7 == 0) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    } else if ((i + rank) % 11 == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      CHECK_MPI(MPI_Win_unlock_all(window));
    }
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  std::int64_t expected = rank == 0 ? sum : 0;
  for (int i = 0; i < kRounds; ++i) {
    if (i % ranks == rank) expected += ranks;
    if (i % 5 == 0 && i % ranks + 1 == rank) expected += ranks;
  }
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  CHECK_EQ(*counter, expected);
  CHECK_MPI(MPI_Win_unlock(rank, window));
  CHECK_MPI(MPI_Win_free(&window));
  return 0;
}
