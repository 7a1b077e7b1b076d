#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_Win_create works on every intra-communicator (MPI 4.0, section 12.2.1), on MPI_COMM_SELF too.
# True of Open MPI 4.1.4 with its shared-memory and self transports: on a communicator of one process it fails with
# MPI_ERR_WIN, since no component takes such a window; MPI_Win_allocate works there. open-mpi/ompi issues 10726, 11391.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static void report(const char* what, int code) {
  int class;
  MPI_Error_class(code, &class);
  const char* name = class == MPI_SUCCESS ? "MPI_SUCCESS" : class == MPI_ERR_WIN ? "MPI_ERR_WIN" : "another class";
  printf("%s: %s\n", what, name);
}
int main(int argc, char** argv) {
  static int memory[4];
  int rank;
  void* allocated;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int code = MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  if (rank == 0) report("MPI_Win_create on two ranks", code);
  if (code == MPI_SUCCESS) MPI_Win_free(&win);
  code = MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win);
  if (rank == 0) report("MPI_Win_create on one", code);
  if (code == MPI_SUCCESS) MPI_Win_free(&win);
  code = MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, &allocated, &win);
  if (rank == 0) report("MPI_Win_allocate on one", code);
  if (code == MPI_SUCCESS) MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'MPI_Win_create on two ranks: MPI_SUCCESS
MPI_Win_create on one: MPI_ERR_WIN
MPI_Win_allocate on one: MPI_SUCCESS'
