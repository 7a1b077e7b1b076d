/* SPDX-License-Identifier: BSD-3-Clause
   Preloaded into ranks of `farside doctor`: in the MPI call of the name FARSIDE_TEST_STALL_IN, rank 1 waits for ever,
   or, with FARSIDE_TEST_STALL_BY=abort, dies. farside does not interpose these calls. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

static void stall_in(const char* call) {
  const char* where = getenv("FARSIDE_TEST_STALL_IN");
  const char* how = getenv("FARSIDE_TEST_STALL_BY");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL) rank = getenv("PMI_RANK");
  if (where == NULL || strcmp(where, call) != 0 || rank == NULL || strcmp(rank, "1") != 0) return;
  if (how != NULL && strcmp(how, "abort") == 0) abort();
  for (;;) pause();
}

int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  stall_in("MPI_Init_thread");
  return PMPI_Init_thread(argc, argv, wanted, provided);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  stall_in("MPI_Comm_split");
  return PMPI_Comm_split(comm, color, key, made);
}

/* In windows: the ranks meet there. */
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  stall_in("MPI_Ibarrier");
  return PMPI_Ibarrier(comm, request);
}
