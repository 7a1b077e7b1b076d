/* SPDX-License-Identifier: BSD-3-Clause
   A halo exchange with notified access: a ring of cells, some on each rank. In each step, a cell becomes a function of
   itself and of its neighbours.
     mpicc -I PREFIX/include halo.c -o halo && farside run -n 4 ./halo */
#include <farside.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCells = 100, kSteps = 200, kLeft = 0, kRight = 1 };

static int64_t after(int64_t left, int64_t cell, int64_t right) { return (left + 2 * cell + right) % 1000003; }

/* Steps over `count` cells whose neighbours are `left` and `right`. */
static void step_over(int64_t* cells, int count, int64_t left, int64_t right) {
  for (int i = 0; i < count; ++i) {
    const int64_t cell = cells[i];
    cells[i] = after(left, cell, i + 1 < count ? cells[i + 1] : right);
    left = cell;
  }
}

int main(int argc, char** argv) {
  int rank, ranks, wrong = 0;
  int64_t cells[kCells], *halo;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  for (int i = 0; i < kCells; ++i) cells[i] = rank * kCells + i;

  /* A halo of a cell on each side, twice, because a neighbour may be a step ahead; and a counter for each side. */
  MPI_Win_allocate(4 * sizeof *halo, sizeof *halo, MPI_INFO_NULL, MPI_COMM_WORLD, &halo, &win);
  MPIX_Win_set_num_notify(win, MPI_INFO_NULL, 2);
  MPI_Win_lock_all(0, win);
  for (int step = 0; step < kSteps; ++step) {
    const int set = 2 * (step % 2);
    MPIX_Put_notify(&cells[0], 1, MPI_INT64_T, left, set + kRight, 1, MPI_INT64_T, kRight, win);
    MPIX_Put_notify(&cells[kCells - 1], 1, MPI_INT64_T, right, set + kLeft, 1, MPI_INT64_T, kLeft, win);
    MPIX_Win_wait_notify(win, kLeft, step + 1);
    MPIX_Win_wait_notify(win, kRight, step + 1);
    MPI_Win_flush_local_all(win); /* the cells may change */
    step_over(cells, kCells, halo[set + kLeft], halo[set + kRight]);
  }
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);

  /* The same on one rank. */
  const int all = kCells * ranks;
  int64_t* expected = malloc((size_t)all * sizeof *expected);
  for (int i = 0; i < all; ++i) expected[i] = i;
  for (int step = 0; step < kSteps; ++step) step_over(expected, all, expected[all - 1], expected[0]);
  for (int i = 0; i < kCells; ++i) wrong |= cells[i] != expected[rank * kCells + i];
  free(expected);
  if (wrong) fprintf(stderr, "rank %d has wrong cells\n", rank);
  MPI_Finalize();
  return wrong;
}
