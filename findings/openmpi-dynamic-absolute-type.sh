#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A dynamic window begins at MPI_BOTTOM, so one would guess that a target datatype of absolute addresses can be put to
# displacement 0 of it, as it can be sent from MPI_BOTTOM: one MPI_Put then fills several attached regions (MPI 4.0,
# sections 5.1.12 and 12.2.4).
# True of Open MPI 4.1.4: MPI_Put refuses it with MPI_ERR_RMA_RANGE, since osc/rdma looks up the region that contains
# the displacement, 0, and not the addresses that the datatype reaches. With the address of the first block as the
# displacement, and offsets to it in the datatype, it takes one region; two regions in one datatype are refused likewise.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
openmpi
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static int rank;
static void put(const char* what, MPI_Aint from, MPI_Aint one, MPI_Aint other, int blocks, MPI_Win win) {
  int values[2] = {1, 2}, lengths[2] = {1, 1}, class = MPI_SUCCESS;
  MPI_Aint places[2] = {one - from, other - from};
  MPI_Datatype type;
  MPI_Type_create_hindexed(blocks, lengths, places, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_Win_lock_all(0, win);
  if (rank == 0) {
    MPI_Error_class(MPI_Put(values, blocks, MPI_INT, 1, from, 1, type, win), &class);
    printf("%s: %s\n", what, class == MPI_SUCCESS ? "success" : class == MPI_ERR_RMA_RANGE ? "MPI_ERR_RMA_RANGE" : "?");
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Type_free(&type);
}
int main(int argc, char** argv) {
  static int first[1024], gap[4096], second[1024];
  MPI_Aint places[2];
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_attach(win, first, sizeof first);
  MPI_Win_attach(win, second, sizeof second);
  (void)gap;
  MPI_Get_address(first, &places[0]);
  MPI_Get_address(second, &places[1]);
  MPI_Bcast(places, 2, MPI_AINT, 1, MPI_COMM_WORLD);
  put("absolute, one region", 0, places[0], places[1], 1, win);
  put("relative, one region", places[0], places[0], places[1], 1, win);
  put("absolute, two regions", 0, places[0], places[1], 2, win);
  MPI_Win_detach(win, first);
  MPI_Win_detach(win, second);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'absolute, one region: MPI_ERR_RMA_RANGE
relative, one region: success
absolute, two regions: MPI_ERR_RMA_RANGE'
