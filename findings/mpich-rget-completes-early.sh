#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that the data are in the buffer when MPI_Wait returns for a request of MPI_Rget (MPI 4.0, section
# 12.3.5: completion of the request indicates that the data are available in the origin buffer).
# True of MPICH 4.0.2 with UCX 1.13.1: for a type with gaps, MPI_Rget returns a request that is complete already, and
# the data arrive later; MPI_Win_flush waits for them. Contiguous types are right. Reported for MPICH 5.0 as
# pmodels/mpich issue 7896.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
mpich
cat >"$scratch/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
enum { kBlocks = 64, kStride = 4, kRounds = 100 };
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double* memory;
  MPI_Win win;
  MPI_Win_allocate(kBlocks * kStride * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  for (int i = 0; i < kBlocks * kStride; ++i) memory[i] = i;
  MPI_Datatype column;
  MPI_Type_vector(kBlocks, 1, kStride, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  int missing[2] = {0, 0}, missing_after_flush = 0;
  MPI_Win_lock_all(0, win);
  MPI_Win_sync(win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; rank == 0 && round < kRounds; ++round) {
    for (int strided = 0; strided < 2; ++strided) {
      double got[kBlocks];
      for (int i = 0; i < kBlocks; ++i) got[i] = -1;
      MPI_Request request;
      MPI_Rget(got, kBlocks, MPI_DOUBLE, 1, 0, strided ? 1 : kBlocks, strided ? column : MPI_DOUBLE, win, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      missing[strided] += got[kBlocks - 1] == -1;
      MPI_Win_flush(1, win);
      missing_after_flush += got[kBlocks - 1] == -1;
    }
  }
  MPI_Win_unlock_all(win);
  if (rank == 0) {
    printf("contiguous: %s after MPI_Wait\n", missing[0] == 0 ? "there" : "missing");
    printf("strided: %s after MPI_Wait\n", missing[1] == 0 ? "there" : "missing");
    printf("%s after MPI_Win_flush\n", missing_after_flush == 0 ? "there" : "missing");
  }
  MPI_Type_free(&column);
  MPI_Win_free(&win);
  MPI_Finalize();
}
C
compile "$scratch/program.c" "$scratch/program"
run 2 "$scratch/program" | expect 'contiguous: there after MPI_Wait
strided: missing after MPI_Wait
there after MPI_Win_flush'
