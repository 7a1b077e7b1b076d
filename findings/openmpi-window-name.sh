#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a window without a name has the empty one: MPI_Win_get_name returns the name last set, and the
# empty string where none was (MPI 4.0, section 7.8).
# True of Open MPI 4.1.4: a window of MPI_Win_allocate is called after the component that serves it and a number, such
# as "rdma window 3", so that a program cannot see whether its user named it; a window of MPI_Win_allocate_shared has
# the empty name. MPICH 4.0.2 returns the empty name for both.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, length;
  char name[MPI_MAX_OBJECT_NAME];
  void* memory;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int shared = 0; shared < 2; ++shared) {
    if (shared) {
      MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else {
      MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    }
    MPI_Win_get_name(win, name, &length);
    if (rank == 0) printf("%s: \"%s\"\n", shared ? "shared" : "allocated", name);
    MPI_Win_free(&win);
  }
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | sed 's/[0-9]\+"$/N"/' | expect 'allocated: "rdma window N"
shared: ""'
