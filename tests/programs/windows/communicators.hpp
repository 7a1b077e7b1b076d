// SPDX-License-Identifier: BSD-3-Clause
// Windows of any communicator; many windows, one after the other and at once.
#pragma once

#include "common.hpp"

namespace windows {

inline void check_group(MPI_Win window, MPI_Comm comm) {
  MPI_Group expected;
  CHECK_MPI(MPI_Comm_group(comm, &expected));
  for (int i = 0; i < 3; ++i) {
    MPI_Group group;
    CHECK_MPI(MPI_Win_get_group(window, &group));
    int relation = -1;
    CHECK_MPI(MPI_Group_compare(group, expected, &relation));
    CHECK_EQ(relation, MPI_IDENT);
    CHECK_MPI(MPI_Group_free(&group));
  }
  CHECK_MPI(MPI_Group_free(&expected));
}

inline void communicators() {
  // Reversed order, halves, single ranks, and a duplicate that is freed before the window is used.
  for (int kind = 0; kind < 4; ++kind) {
    MPI_Comm comm;
    if (kind == 0) CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comm));
    if (kind == 1) CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm));
    if (kind == 2) comm = MPI_COMM_SELF;
    if (kind == 3) CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    std::vector<int> own(16);
    void* base = nullptr;
    MPI_Win allocated;
    MPI_Win created;
    CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, &base, &allocated));
    CHECK_MPI(MPI_Win_create(own.data(), 64, 1, MPI_INFO_NULL, comm, &created));
    check_group(allocated, comm);
    check_group(created, comm);
    MPI_Comm used = comm;
    if (kind == 3) {
      CHECK_MPI(MPI_Comm_free(&comm));
      used = MPI_COMM_WORLD;
    }
    for (int round = 0; round < 3; ++round) {
      check_works(allocated, base, used);
      check_works(created, own.data(), used);
    }
    CHECK_MPI(MPI_Win_free(&allocated));
    CHECK_MPI(MPI_Win_free(&created));
    if (kind < 2) CHECK_MPI(MPI_Comm_free(&comm));
  }
  // A communicator without some of the ranks.
  MPI_Comm some;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, rank, &some));
  if (rank != 0) {
    make_and_use(some, 64);
    CHECK_MPI(MPI_Comm_free(&some));
  }
}

// Two halves make and free windows at their own pace, then all ranks do so together.
inline void disjoint_communicators() {
  MPI_Comm half;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
  for (int i = 0; i < (rank % 2 == 0 ? 5 : 9); ++i) make_and_use(half, 4096);
  CHECK_MPI(MPI_Comm_free(&half));
}

// Each with several windows, one of which some rank refuses; some end before their windows. What farside keeps of a
// communicator must come and go with it.
inline void communicators_come_and_go() {
  for (int round = 0; round < 40; ++round) {
    MPI_Comm comm;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    const int refused = round % 4;  // the window that is refused; with none in the last round of four
    const bool refuses = rank == round % size;
    std::vector<MPI_Win> windows;
    std::vector<int*> bases;
    for (int i = 0; i < 3; ++i) {
      int* base = nullptr;
      MPI_Win window;
      const MPI_Aint bytes = i == refused && refuses ? -1 : 64;
      const int code = MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, comm, &base, &window);
      CHECK((code != MPI_SUCCESS) == (i == refused));
      if (code != MPI_SUCCESS) continue;
      windows.push_back(window);
      bases.push_back(base);
    }
    MPI_Comm own;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    if (round % 2 == 0) CHECK_MPI(MPI_Comm_free(&comm));
    for (std::size_t i = 0; i < windows.size(); ++i) check_works(windows[i], bases[i], own);
    for (MPI_Win& window : windows) CHECK_MPI(MPI_Win_free(&window));
    if (round % 2 != 0) CHECK_MPI(MPI_Comm_free(&comm));
    CHECK_MPI(MPI_Comm_free(&own));
  }
}

inline void several_at_once() {
  constexpr int kWindows = 12;
  std::vector<MPI_Win> windows(kWindows);
  std::vector<int*> bases(kWindows);
  std::vector<int> values(kWindows);
  const int target = (rank + 1) % size;
  const int origin = (rank + size - 1) % size;
  for (int i = 0; i < kWindows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK_MPI(MPI_Win_allocate(256, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &bases[at], &windows[at]));
  }
  for (MPI_Win window : windows) CHECK_MPI(MPI_Win_fence(0, window));
  for (std::size_t i = 0; i < kWindows; ++i) {
    values[i] = static_cast<int>(i) * 10 + rank;
    CHECK_MPI(MPI_Put(&values[i], 1, MPI_INT, target, 3, 1, MPI_INT, windows[i]));
  }
  for (std::size_t i = kWindows; i-- > 0;) CHECK_MPI(MPI_Win_fence(0, windows[i]));
  for (std::size_t i = 0; i < kWindows; ++i) CHECK_EQ(bases[i][3], static_cast<int>(i) * 10 + origin);
  // Freed in another order than made, while the others are in use.
  for (std::size_t i = 1; i < kWindows; i += 2) CHECK_MPI(MPI_Win_free(&windows[i]));
  for (std::size_t i = 0; i < kWindows; i += 2) check_works(windows[i], bases[i], MPI_COMM_WORLD);
  for (std::size_t i = 0; i < kWindows; i += 2) CHECK_MPI(MPI_Win_free(&windows[i]));
}

inline void many_rounds() {
  for (int round = 0; round < 200; ++round) {
    void* base = nullptr;
    std::vector<int> own(1024);
    MPI_Win window;
    if (round % 2 == 0) {
      CHECK_MPI(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    } else {
      base = own.data();
      CHECK_MPI(MPI_Win_create(base, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    }
    check_works(window, base, MPI_COMM_WORLD);
    CHECK_MPI(MPI_Win_free(&window));
  }
}

}  // namespace windows
