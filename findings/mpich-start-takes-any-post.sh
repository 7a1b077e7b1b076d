#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that an access epoch reaches a target only after that target's MPI_Win_post: "RMA accesses to each
# target window will be delayed, if necessary, until the target process executed the matching call to MPI_WIN_POST"
# (MPI 4.0, section 12.5.2).
# True of MPICH 4.0.2, and of 4.2.1 and 5.0.2: MPI_Win_start counts the posts that have come, whoever sent them. Where
# rank 2 posts early, for the next epoch of rank 0, the put of the first epoch changes the memory of rank 1 before it has
# posted. With groups that change from round to round, the counts get mixed up further, until ranks wait for ever.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, flag, *memory;
  const int value = 42;
  MPI_Group world, one[3];
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int r = 0; r < 3; ++r) MPI_Group_incl(world, 1, &r, &one[r]);
  MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  *memory = 0;
  if (rank == 2) MPI_Win_post(one[0], 0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int target = 1; target <= 2; ++target) {
      MPI_Win_start(one[target], 0, win);
      MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, win);
      MPI_Win_complete(win);
    }
  } else {
    if (rank == 1) {
      for (const double end = MPI_Wtime() + 2; MPI_Wtime() < end; usleep(1000))  // MPI calls: MPICH makes progress
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
      printf("rank 1 before its post: %d\n", *memory);
      MPI_Win_post(one[0], 0, win);
    }
    MPI_Win_wait(win);
    if (rank == 1) printf("rank 1 after MPI_Win_wait: %d\n", *memory);
  }
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 3 "$scratch/program" | expect 'rank 1 before its post: 42
rank 1 after MPI_Win_wait: 42'
