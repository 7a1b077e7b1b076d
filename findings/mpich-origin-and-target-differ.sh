#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a call may describe more room at the receiver than the sender has data, as for send and receive,
# and that the rest stays unchanged: MPI_Put is defined as such a pair, MPI_Accumulate likewise, and for MPI_Get the data
# must fit into the origin buffer (MPI 4.0, sections 12.3.1, 12.3.2, 12.3.4).
# True of MPICH 4.0.2, and of 4.2.1 and 5.0.2, on one node: MPI_Put does so. MPI_Get fills the origin buffer with what
# lies behind the data at the target, and MPI_Accumulate combines the target's rest with bytes of the library's heap. So
# give both sides the same number of elements.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static void report(const char* what, const int* from, const int* to, int unchanged) {
  int all = 1;
  for (; from < to; ++from) all = all && *from == unchanged;
  printf("%s: the rest is %s\n", what, all ? "unchanged" : "changed");
  fflush(stdout);
}
int main(int argc, char** argv) {
  int rank, *memory, in[24];
  const int out[2] = {1, 2};
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Win_allocate(sizeof in, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  for (int i = 0; i < 24; ++i) in[i] = memory[i] = 0;
  MPI_Win_fence(0, win);
  if (rank == 0) MPI_Put(out, 2, MPI_INT, 1, 0, 24, MPI_INT, win);
  MPI_Win_fence(0, win);
  if (rank == 1) report("put of 2 into 24", memory + 2, memory + 24, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_fence(0, win);
  if (rank == 0) MPI_Accumulate(out, 2, MPI_INT, 1, 0, 24, MPI_INT, MPI_SUM, win);
  MPI_Win_fence(0, win);
  if (rank == 1) report("accumulate of 2 into 24", memory + 2, memory + 24, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 24; ++i) memory[i] = 7;
  MPI_Win_fence(0, win);
  if (rank == 0) MPI_Get(in, 24, MPI_INT, 1, 0, 2, MPI_INT, win);
  MPI_Win_fence(0, win);
  if (rank == 0) report("get of 2 into 24", in + 2, in + 24, 0);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | sort | expect 'accumulate of 2 into 24: the rest is changed
get of 2 into 24: the rest is changed
put of 2 into 24: the rest is unchanged'
