#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_Put writes at the displacement that it names (MPI 4.0, section 12.3.1: window_base +
# target_disp x disp_unit), whatever the size of the window.
# True of MPICH 4.0.2 with UCX 1.13.1: the base of a window is rounded down to a multiple of 16, and the data of put,
# get and accumulate go to the address below, in silence. MPI_Win_allocate places the memory of the ranks of a node one
# behind the other, unaligned, so that a window of 24 bytes per rank is enough: what rank 0 puts into the first long of
# rank 1 arrives in the last long of rank 0's own memory.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  long* memory;
  MPI_Win win;
  MPI_Win_allocate(3 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  for (int i = 0; i < 3; ++i) memory[i] = -1;
  MPI_Win_fence(0, win);
  const long value = 42;
  if (rank == 0) MPI_Put(&value, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
  MPI_Win_fence(0, win);
  for (int r = 0; r < 2; ++r) {
    if (r == rank) {
      printf("rank %d, base %% 16 = %d: %ld %ld %ld\n", rank, (int)((uintptr_t)memory % 16), memory[0], memory[1],
             memory[2]);
      fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | sort | expect 'rank 0, base % 16 = 0: -1 -1 42
rank 1, base % 16 = 8: -1 -1 -1'
