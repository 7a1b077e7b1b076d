#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that the copy callback of a communicator's attribute runs only when the program duplicates the
# communicator (MPI 4.0, section 7.7.2), and not when it makes a window.
# True of MPICH 4.0.2 and Open MPI 4.1.4: they duplicate the communicator inside MPI_Win_allocate by the same means as
# the program would, so that the copy callback runs there, and the delete callback in MPI_Win_free. A callback that
# counts, or sends messages, must expect it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static int copies, deletes;
static int copy(MPI_Comm comm, int key, void* extra, void* in, void* out, int* flag) {
  ++copies;
  *(void**)out = in;
  *flag = 1;
  return MPI_SUCCESS;
}
static int delete(MPI_Comm comm, int key, void* value, void* extra) {
  ++deletes;
  return MPI_SUCCESS;
}
int main(int argc, char** argv) {
  int rank, key;
  void* memory;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_create_keyval(copy, delete, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL);
  MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  if (rank == 0) printf("MPI_Win_allocate: copied %d, deleted %d\n", copies, deletes);
  MPI_Win_free(&win);
  if (rank == 0) printf("MPI_Win_free: copied %d, deleted %d\n", copies, deletes);
  MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
  MPI_Comm_free_keyval(&key);
  MPI_Finalize();
}
C
stated='MPI_Win_allocate: copied 1, deleted 0
MPI_Win_free: copied 1, deleted 1'
mpich
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect "$stated"
openmpi
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect "$stated"
