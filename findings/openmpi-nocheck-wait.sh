#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_Win_wait waits for the MPI_Win_complete of all origins, whatever the assertions: with
# MPI_MODE_NOCHECK, MPI_Win_start need not look for the post, which the program orders itself (MPI 4.0, sections 12.5.2
# and 12.5.5).
# True of Open MPI 4.1.4 and windows of MPI_Win_allocate_shared (osc/sm): MPI_Win_post with MPI_MODE_NOCHECK does not
# reset the count of completes, so that from the second round on MPI_Win_wait returns before the put, and after that may
# wait for ever. The same of 5.0.7 and 6.0.0rc2, there also with MPI_Win_allocate on one node.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, *memory;
  MPI_Group world, peer;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int other = 1 - rank;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &other, &peer);
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  for (int round = 1; round <= 2; ++round) {
    if (rank == 1) MPI_Win_post(peer, MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);  // the post precedes the start
    if (rank == 1) {
      MPI_Win_wait(win);
      printf("round %d: after MPI_Win_wait the window has the data of round %d\n", round, *memory);
    } else {
      MPI_Win_start(peer, MPI_MODE_NOCHECK, win);
      sleep(1);
      MPI_Put(&round, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
      MPI_Win_complete(win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'round 1: after MPI_Win_wait the window has the data of round 1
round 2: after MPI_Win_wait the window has the data of round 1'
