#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that MPI_Win_shared_query returns the size that the rank gave to MPI_Win_allocate_shared (MPI 4.0,
# section 12.2.3), so that a program may derive the number of its elements from it.
# True of Open MPI 4.1.4: with the hint alloc_shared_noncontig it returns the size rounded up to whole pages, although
# the attribute MPI_WIN_SIZE has the right one. Without the hint both are right.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  const char* values[] = {"false", "true"};
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 2; ++i) {
    MPI_Info info;
    MPI_Win win;
    void *memory, *base;
    MPI_Aint size, *attribute;
    int unit, found;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", values[i]);
    MPI_Win_allocate_shared(40, 4, info, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_shared_query(win, 1, &size, &unit, &base);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &attribute, &found);
    if (rank == 0) {
      printf("alloc_shared_noncontig=%s: attribute %ld, query %s\n", values[i], (long)*attribute,
             size == 40 ? "40" : size == sysconf(_SC_PAGESIZE) ? "one page" : "another size");
    }
    MPI_Win_free(&win);
    MPI_Info_free(&info);
  }
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'alloc_shared_noncontig=false: attribute 40, query 40
alloc_shared_noncontig=true: attribute 40, query one page'
