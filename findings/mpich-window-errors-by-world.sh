#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that an error in a call on a window ends the program unless the window's own error handler was
# changed: a new window has MPI_ERRORS_ARE_FATAL (MPI 4.0, section 9.3), whatever the handler of its communicator.
# True of MPICH 4.0.2: MPI_Win_get_errhandler says MPI_ERRORS_ARE_FATAL, and yet the error returns, if MPI_COMM_WORLD
# has MPI_ERRORS_RETURN. Programs rely on it and end under other implementations.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, value = 1, class = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int* memory;
  MPI_Win win;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  MPI_Errhandler handler;
  MPI_Win_get_errhandler(win, &handler);
  MPI_Win_lock_all(0, win);
  const int code = MPI_Put(&value, 1, MPI_INT, 2, 0, 1, MPI_INT, win);   // there is no rank 2
  MPI_Error_class(code, &class);
  MPI_Win_unlock_all(win);
  if (rank == 0) {
    printf("handler of the window: %s\n", handler == MPI_ERRORS_ARE_FATAL ? "MPI_ERRORS_ARE_FATAL" : "another");
    printf("MPI_Put returned %s\n", class == MPI_ERR_RANK ? "MPI_ERR_RANK" : "another class");
  }
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'handler of the window: MPI_ERRORS_ARE_FATAL
MPI_Put returned MPI_ERR_RANK'
