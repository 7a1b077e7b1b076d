#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a type of MPI_Type_create_f90_real may be used wherever a predefined type is needed: the call
# returns a predefined type (MPI 4.0, section 19.1.9), and MPI_Fetch_and_op wants one (section 12.3.4).
# True of MPICH 4.0.2: MPI_Fetch_and_op refuses it with MPI_ERR_TYPE, whereas MPI_Accumulate takes it. Open MPI 4.1.4
# takes it in both.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static void report(const char* what, int code, int rank) {
  int class;
  MPI_Error_class(code, &class);
  const char* name = class == MPI_SUCCESS ? "MPI_SUCCESS" : class == MPI_ERR_TYPE ? "MPI_ERR_TYPE" : "another error";
  if (rank == 0) printf("%s: %s\n", what, name);
}
int main(int argc, char** argv) {
  int rank;
  double *memory, one = 1, before;
  MPI_Datatype real;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Type_create_f90_real(15, MPI_UNDEFINED, &real);
  MPI_Win_allocate(2 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_fence(0, win);
  const int added = MPI_Accumulate(&one, 1, real, 1, 0, 1, real, MPI_SUM, win);
  const int fetched = MPI_Fetch_and_op(&one, &before, real, 1, 0, MPI_SUM, win);
  MPI_Win_fence(0, win);
  report("accumulate", added, rank);
  report("fetch_and_op", fetched, rank);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
mpich
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'accumulate: MPI_SUCCESS
fetch_and_op: MPI_ERR_TYPE'
openmpi
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'accumulate: MPI_SUCCESS
fetch_and_op: MPI_SUCCESS'
