#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_MAX and MPI_MIN compare MPI_OFFSET as the signed integer that it is in C (MPI 4.0, sections
# 2.5.7 and 6.9.2), as they do MPI_AINT and MPI_COUNT.
# True of Open MPI 4.1.4, and of 5.0.7 and 6.0.0rc2: MPI_OFFSET is compared as unsigned, so that -1 is the greatest of
# all, in MPI_Accumulate and in MPI_Allreduce.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
static void maximum(const char* name, MPI_Datatype type, int rank, int64_t* memory, MPI_Win win) {
  const int64_t operand = rank == 0 ? -1 : 5;
  int64_t reduced;
  *memory = 5;
  MPI_Win_fence(0, win);
  if (rank == 0) MPI_Accumulate(&operand, 1, type, 1, 0, 1, type, MPI_MAX, win);
  MPI_Win_fence(0, win);
  MPI_Allreduce(&operand, &reduced, 1, type, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 1) printf("%s: the maximum of 5 and -1 is %d, by MPI_Allreduce %d\n", name, (int)*memory, (int)reduced);
}
int main(int argc, char** argv) {
  int rank;
  int64_t* memory;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  maximum("MPI_AINT", MPI_AINT, rank, memory, win);
  maximum("MPI_COUNT", MPI_COUNT, rank, memory, win);
  maximum("MPI_OFFSET", MPI_OFFSET, rank, memory, win);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'MPI_AINT: the maximum of 5 and -1 is 5, by MPI_Allreduce 5
MPI_COUNT: the maximum of 5 and -1 is 5, by MPI_Allreduce 5
MPI_OFFSET: the maximum of 5 and -1 is -1, by MPI_Allreduce -1'
