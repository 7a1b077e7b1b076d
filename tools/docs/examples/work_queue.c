/* SPDX-License-Identifier: BSD-3-Clause
   A producer-consumer queue with notified access: all other ranks produce items for rank 0, where each has a ring of
   slots and a counter of its items. A put of nothing tells the producer that a slot is free.
     mpicc -I PREFIX/include work_queue.c -o work_queue && farside run -n 3 ./work_queue */
#include <farside.h>
#include <stdint.h>
#include <stdio.h>

enum { kItems = 500, kSlots = 8, kFreed = 0 };

int main(int argc, char** argv) {
  int rank, ranks, wrong = 0;
  int64_t* slots;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Win_allocate((rank == 0 ? ranks : 1) * kSlots * (MPI_Aint)sizeof *slots, sizeof *slots, MPI_INFO_NULL,
                   MPI_COMM_WORLD, &slots, &win);
  MPIX_Win_set_num_notify(win, MPI_INFO_NULL, rank == 0 ? ranks : 1);
  MPI_Win_lock_all(0, win);
  for (int i = 0; i < kItems; ++i) {
    if (rank != 0) {
      const int64_t item = rank * 1000000 + i;
      if (i >= kSlots) MPIX_Win_wait_notify(win, kFreed, i - kSlots + 1);
      MPIX_Put_notify(&item, 1, MPI_INT64_T, 0, rank * kSlots + i % kSlots, 1, MPI_INT64_T, rank, win);
      MPI_Win_flush_local(0, win);
    }
    for (int from = 1; rank == 0 && from < ranks; ++from) {
      MPIX_Win_wait_notify(win, from, i + 1);
      wrong |= slots[from * kSlots + i % kSlots] != from * 1000000 + i;
      MPIX_Put_notify(NULL, 0, MPI_INT64_T, from, 0, 0, MPI_INT64_T, kFreed, win);
    }
  }
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
  if (wrong) fprintf(stderr, "rank %d has got a wrong item\n", rank);
  MPI_Finalize();
  return wrong;
}
