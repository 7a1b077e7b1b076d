// SPDX-License-Identifier: BSD-3-Clause
// The library that late-main opens: each rank puts numbers to the next rank. With IN_CONSTRUCTOR it does so when it is
// loaded, and again when it is unloaded, while the dynamic linker holds its lock.
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

enum { kPlaces = 32, kStep = 4 };  // every kStep-th place is written

static int put_to_next(MPI_Win window, const int* memory) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int numbers[kPlaces / kStep];
  for (int i = 0; i < kPlaces / kStep; ++i) numbers[i] = rank + i;
  MPI_Datatype places;
  MPI_Type_vector(kPlaces / kStep, 1, kStep, MPI_INT, &places);
  MPI_Type_commit(&places);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (rank + 1) % ranks, 0, window);
  MPI_Put(numbers, kPlaces / kStep, MPI_INT, (rank + 1) % ranks, 0, 1, places, window);
  MPI_Win_unlock((rank + 1) % ranks, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Type_free(&places);
  int wrong = 0;
  for (int i = 0; i < kPlaces / kStep; ++i) wrong |= memory[kStep * i] != (rank + ranks - 1) % ranks + i;
  if (wrong) fprintf(stderr, "rank %d has %d at first, not %d\n", rank, *memory, (rank + ranks - 1) % ranks);
  MPI_Win_free(&window);
  return wrong;
}

static int use_windows(void) {
  static int own[kPlaces];
  int* memory = NULL;
  MPI_Win window;
  MPI_Win_allocate(kPlaces * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  const int wrong = put_to_next(window, memory);
  MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  return put_to_next(window, own) | wrong;
}

int run(void);
#ifdef IN_CONSTRUCTOR
static int wrong;
__attribute__((constructor)) static void load(void) {
  MPI_Init(NULL, NULL);
  wrong = use_windows();
}
__attribute__((destructor)) static void unload(void) {
  wrong |= use_windows();
  MPI_Finalize();
  if (wrong) exit(1);
}
int run(void) { return wrong; }
#else
int run(void) {
  MPI_Init(NULL, NULL);
  const int wrong = use_windows();
  MPI_Finalize();
  return wrong;
}
#endif
