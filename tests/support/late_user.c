// SPDX-License-Identifier: BSD-3-Clause
// The library that late-main opens: each rank puts its number to the next rank.
#include <stdio.h>

#include <mpi.h>

int run(void);
int run(void) {
  int rank = 0, ranks = 0, *memory = NULL;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Win window;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_fence(0, window);
  MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  const int expected = (rank + ranks - 1) % ranks;
  const int wrong = *memory != expected;
  if (wrong) fprintf(stderr, "rank %d has %d, not %d\n", rank, *memory, expected);
  MPI_Win_free(&window);
  MPI_Finalize();
  return wrong;
}
