// SPDX-License-Identifier: BSD-3-Clause
// All ranks but rank 1 make windows. Rank 1 may run without farside, since it makes none.
#include "check.hpp"

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const bool aside = check::rank() == 1;
  MPI_Comm comm;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, aside ? 1 : 0, 0, &comm));
  if (!aside) {
    int rank = 0, ranks = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &rank));
    CHECK_MPI(MPI_Comm_size(comm, &ranks));
    check::section("a window without rank 1");
    int* base = nullptr;
    MPI_Win window;
    CHECK_MPI(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &base, &window));
    CHECK(!check::hint(window, "farside_route").empty());
    const int value = 70 + rank;
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_EQ(*base, 70 + (rank + ranks - 1) % ranks);
    CHECK_MPI(MPI_Win_free(&window));
  }
  CHECK_MPI(MPI_Comm_free(&comm));
  return 0;
}
