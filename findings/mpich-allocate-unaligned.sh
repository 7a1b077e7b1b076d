#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that memory of MPI_Win_allocate is aligned as that of malloc, since each rank gets its own.
# True of MPICH 4.0.2: the memory of the ranks of a node is one region, each behind the other without a gap, so that an
# odd size of one rank gives the next an odd address. MPI_Alloc_mem is aligned. The standard promises no alignment
# before the hint mpi_minimum_memory_alignment (MPI 4.0, section 12.2.2). Pad the sizes to multiples of 16; that avoids
# wrong addresses as well (mpich-rounds-window-base.sh).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank;
  void *window_memory, *memory;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Win_allocate(13, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_memory, &win);
  MPI_Alloc_mem(13, MPI_INFO_NULL, &memory);
  printf("rank %d: MPI_Win_allocate %% 16 = %d, MPI_Alloc_mem %% 16 = %d\n", rank,
         (int)((uintptr_t)window_memory % 16), (int)((uintptr_t)memory % 16));
  MPI_Free_mem(memory);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 3 "$scratch/program" | sort | expect 'rank 0: MPI_Win_allocate % 16 = 0, MPI_Alloc_mem % 16 = 0
rank 1: MPI_Win_allocate % 16 = 13, MPI_Alloc_mem % 16 = 0
rank 2: MPI_Win_allocate % 16 = 10, MPI_Alloc_mem % 16 = 0'
