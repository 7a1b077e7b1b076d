// SPDX-License-Identifier: BSD-3-Clause
// A lock convoy, for the trace of it: all ranks request rank 0's lock at the same time, and each holds it for some
// milliseconds. With FARSIDE_TRACE the trace must say which rank waited for which (tests/cli/trace). The window keeps
// the order in which the ranks held the lock, and the program prints it at the end: "order 2 0 1".
#include <chrono>
#include <cstdint>
#include <iostream>
#include <thread>

#include "check.hpp"

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int rank = check::rank(), ranks = check::size();
  // Word 0 counts the ranks that held the lock; the other words have their order.
  check::Window window(program.memory(), (static_cast<std::size_t>(ranks) + 1) * sizeof(std::int64_t),
                       sizeof(std::int64_t));
  CHECK_MPI(MPI_Win_set_name(window, "convoy"));
  auto* words = window.as<std::int64_t>();
  for (int i = 0; i <= ranks; ++i) words[i] = -1;
  words[0] = 0;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));

  check::section("all want one lock");
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  std::int64_t before = 0;
  CHECK_MPI(MPI_Get(&before, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(0, window));
  const std::int64_t after = before + 1, me = rank;
  CHECK_MPI(MPI_Put(&after, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Put(&me, 1, MPI_INT64_T, 0, before + 1, 1, MPI_INT64_T, window));
  // The sleep makes the other ranks wait.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_MPI(MPI_Win_unlock(0, window));

  check::section("fences, and an epoch by lock_all");
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&me, 1, MPI_INT64_T, (rank + 1) % ranks, ranks, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::int64_t seen = 0;
  CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_EQ(seen, static_cast<std::int64_t>(ranks));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    std::cout << "order";
    // The put between the fences has overwritten the last word; its rank is the one that is missing in the others.
    std::int64_t missing = static_cast<std::int64_t>(ranks) * (ranks - 1) / 2;
    for (int i = 1; i < ranks; ++i) {
      std::cout << ' ' << words[i];
      missing -= words[i];
    }
    std::cout << ' ' << missing << std::endl;
  }
  return 0;
}
