// SPDX-License-Identifier: BSD-3-Clause
// PETSc's star forests carried by windows (-sf_type window): broadcast, reduce with several operations, fetch and op,
// in each of its ways to synchronize on each flavor of window that it makes. Nothing of farside.
#include <petscsf.h>

#include "check.h"

enum { kRoots = 20 };

static PetscMPIInt rank, size;

#define CALL(call) CHECK_EQ(call, 0)

// Each rank has kRoots roots. Its leaves: every third root of the right on-node peer, backwards, and one of its own; in
// leaf memory of twice the room, with gaps.
enum { kLeaves = 8, kRoom = 2 * kLeaves };
static int place(int leaf) { return 2 * leaf + 1; }
static int owner(int of, int leaf) { return leaf == kLeaves - 1 ? of : (of + 1) % size; }
// No root has two leaves.
static int root(int leaf) { return leaf == kLeaves - 1 ? 5 : kRoots - 1 - 3 * leaf + (leaf == 6); }

static PetscSF forest(PetscSFWindowSyncType sync, PetscSFWindowFlavorType flavor) {
  PetscSF sf;
  PetscInt places[kLeaves];
  PetscSFNode roots[kLeaves];
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    places[leaf] = place(leaf);
    roots[leaf].rank = owner(rank, leaf);
    roots[leaf].index = root(leaf);
  }
  CALL(PetscSFCreate(PETSC_COMM_WORLD, &sf));
  CALL(PetscSFSetType(sf, PETSCSFWINDOW));
  CALL(PetscSFWindowSetSyncType(sf, sync));
  CALL(PetscSFWindowSetFlavorType(sf, flavor));
  CALL(PetscSFSetFromOptions(sf));
  CALL(PetscSFSetGraph(sf, kRoots, kLeaves, places, PETSC_COPY_VALUES, roots, PETSC_COPY_VALUES));
  CALL(PetscSFSetUp(sf));
  return sf;
}

// PETSc copies the roots into a window that it uses again (locks, and a flavor that is not create) without waiting for
// who still reads the last ones.
static void apart(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void run(PetscSF sf, int round) {
  double roots[kRoots], leaves[kRoom];
  const int left = (rank + size - 1) % size;
  for (int i = 0; i < kRoots; ++i) roots[i] = 1000 * round + 100 * rank + i;
  for (int i = 0; i < kRoom; ++i) leaves[i] = -1;
  CALL(PetscSFBcastBegin(sf, MPI_DOUBLE, roots, leaves, MPI_REPLACE));
  CALL(PetscSFBcastEnd(sf, MPI_DOUBLE, roots, leaves, MPI_REPLACE));
  for (int i = 0; i < kRoom; ++i) {
    const int leaf = i / 2;
    CHECK_EQ(leaves[i], i % 2 == 0 ? -1 : 1000 * round + 100 * owner(rank, leaf) + root(leaf));
  }
  apart();
  // What leaf `leaf` of rank `of` gives; what root `i` here gets.
#define GIVEN(of, leaf) (10.0 * (of) + (leaf))
  const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_REPLACE};
  for (int which = 0; which < 3; ++which) {
    for (int i = 0; i < kRoots; ++i) roots[i] = 5;
    for (int leaf = 0; leaf < kLeaves; ++leaf) leaves[place(leaf)] = GIVEN(rank, leaf);
    CALL(PetscSFReduceBegin(sf, MPI_DOUBLE, leaves, roots, ops[which]));
    CALL(PetscSFReduceEnd(sf, MPI_DOUBLE, leaves, roots, ops[which]));
    double wanted[kRoots];
    for (int i = 0; i < kRoots; ++i) wanted[i] = 5;
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      const int from = leaf == kLeaves - 1 ? rank : left;
      double* at = &wanted[root(leaf)];
      *at = which == 0 ? *at + GIVEN(from, leaf) : which == 1 && *at > GIVEN(from, leaf) ? *at : GIVEN(from, leaf);
    }
    for (int i = 0; i < kRoots; ++i) CHECK_EQ(roots[i], wanted[i]);
    apart();
  }
}

// All ranks add to the first root of rank 0: each sees a sum of its own.
static void fetch(PetscSFWindowSyncType sync, PetscSFWindowFlavorType flavor) {
  PetscSF sf;
  PetscSFNode first = {0, 0};
  CALL(PetscSFCreate(PETSC_COMM_WORLD, &sf));
  CALL(PetscSFSetType(sf, PETSCSFWINDOW));
  CALL(PetscSFWindowSetSyncType(sf, sync));
  CALL(PetscSFWindowSetFlavorType(sf, flavor));
  CALL(PetscSFSetGraph(sf, 1, 1, NULL, PETSC_COPY_VALUES, &first, PETSC_COPY_VALUES));
  CALL(PetscSFSetUp(sf));
  for (int round = 0; round < 5; ++round) {
    PetscInt mine = 0, one = 1, seen = -1;
    CALL(PetscSFFetchAndOpBegin(sf, MPIU_INT, &mine, &one, &seen, MPI_SUM));
    CALL(PetscSFFetchAndOpEnd(sf, MPIU_INT, &mine, &one, &seen, MPI_SUM));
    PetscInt sum = 0;
    MPI_Allreduce(&seen, &sum, 1, MPIU_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK_EQ(sum, size * (size - 1) / 2);
    CHECK_EQ(mine, rank == 0 ? size : 0);
    apart();
  }
  CALL(PetscSFDestroy(&sf));
}

int main(int argc, char** argv) {
  CALL(PetscInitialize(&argc, &argv, NULL, NULL));
  check_start();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static char section[40];
  check_section = section;
  static const PetscSFWindowSyncType syncs[] = {PETSCSF_WINDOW_SYNC_FENCE, PETSCSF_WINDOW_SYNC_LOCK,
                                                PETSCSF_WINDOW_SYNC_ACTIVE};
  // Those it was built with: Debian's has no MPI_Win_allocate and no MPI_Win_create_dynamic in it.
  static const struct {
    PetscSFWindowFlavorType flavor;
    const char* name;
  } flavors[] = {
      {PETSCSF_WINDOW_FLAVOR_CREATE, "create"},
#ifdef PETSC_HAVE_MPI_FEATURE_DYNAMIC_WINDOW
      {PETSCSF_WINDOW_FLAVOR_DYNAMIC, "dynamic"},
      {PETSCSF_WINDOW_FLAVOR_ALLOCATE, "allocate"},
#endif
      {PETSCSF_WINDOW_FLAVOR_SHARED, "shared"},
  };
  static const char* const sync_names[] = {"fence", "lock", "active"};
  for (int sync = 0; sync < 3; ++sync)
    for (size_t flavor = 0; flavor < sizeof flavors / sizeof *flavors; ++flavor) {
      snprintf(section, sizeof section, "%s, %s", sync_names[sync], flavors[flavor].name);
      if (rank == 0) printf("%s\n", check_section), fflush(stdout);
      PetscSF sf = forest(syncs[sync], flavors[flavor].flavor);
      for (int round = 0; round < 5; ++round) run(sf, round);
      CALL(PetscSFDestroy(&sf));
      // PETSc fetches and adds by locks only.
      if (syncs[sync] == PETSCSF_WINDOW_SYNC_LOCK) fetch(syncs[sync], flavors[flavor].flavor);
    }
  check_section = "the end";
  CALL(PetscFinalize());
  return 0;
}
