// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the sections of `windows`.
#pragma once

#include "../check.hpp"

namespace windows {

inline int rank;
inline int size;

template <class T>
inline T attribute(MPI_Win window, int keyval) {
  T* value = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, keyval, &value, &found));
  CHECK(found);
  return *value;
}

inline void check_attributes(MPI_Win window, const void* base, MPI_Aint bytes, int unit, int flavor) {
  void* address = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, &address, &found));
  CHECK(found);
  if (bytes > 0) CHECK_EQ(static_cast<const void*>(address), base);
  CHECK_EQ(attribute<MPI_Aint>(window, MPI_WIN_SIZE), bytes);
  CHECK_EQ(attribute<int>(window, MPI_WIN_DISP_UNIT), unit);
  CHECK_EQ(attribute<int>(window, MPI_WIN_CREATE_FLAVOR), flavor);
  const int model = attribute<int>(window, MPI_WIN_MODEL);
  CHECK(model == MPI_WIN_UNIFIED || model == MPI_WIN_SEPARATE);
}

// Passes one value round the ring through the first bytes of the windows of a communicator.
inline void check_works(MPI_Win window, void* base, MPI_Comm comm) {
  int me = 0;
  int all = 0;
  CHECK_MPI(MPI_Comm_rank(comm, &me));
  CHECK_MPI(MPI_Comm_size(comm, &all));
  const int value = 500 + me;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, (me + 1) % all, 0, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(*static_cast<int*>(base), 500 + (me + all - 1) % all);
}

// Makes, uses and frees a window of a communicator.
inline void make_and_use(MPI_Comm comm, MPI_Aint bytes) {
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, comm, &base, &window));
  check_works(window, base, comm);
  CHECK_MPI(MPI_Win_free(&window));
}

}  // namespace windows
