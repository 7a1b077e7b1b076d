#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a hint that MPI_Win_allocate took is still there after MPI_Win_set_info gave it again, and that
# MPI_Win_get_info leaves out keys that nothing knows: it returns the hints in use (MPI 4.0, section 12.2.7).
# True of Open MPI 4.1.4: MPI_Win_get_info returns an unknown key of the creation as if it were used, and a hint that
# MPI_Win_set_info sets again, even to the same value, is gone from the answer. open-mpi/ompi issue 6506.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static void show(const char* when, MPI_Win win, int rank) {
  const char* keys[] = {"accumulate_ordering", "no_locks", "of_nobody"};
  MPI_Info info;
  MPI_Win_get_info(win, &info);
  if (rank == 0) printf("%s:", when);
  for (int i = 0; i < 3; ++i) {
    char value[64];
    int found;
    MPI_Info_get(info, keys[i], sizeof value - 1, value, &found);
    if (found && rank == 0) printf(" %s=%s", keys[i], value);
  }
  if (rank == 0) printf("\n");
  MPI_Info_free(&info);
}
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Info info, other;
  MPI_Win win;
  void* memory;
  MPI_Info_create(&info);
  MPI_Info_set(info, "accumulate_ordering", "none");
  MPI_Info_set(info, "of_nobody", "1");
  MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &memory, &win);
  show("created", win, rank);
  MPI_Info_create(&other);
  MPI_Info_set(other, "accumulate_ordering", "none");
  MPI_Win_set_info(win, other);
  show("set again", win, rank);
  MPI_Info_free(&info);
  MPI_Info_free(&other);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'created: accumulate_ordering=none no_locks=false of_nobody=1
set again: no_locks=false of_nobody=1'
