// SPDX-License-Identifier: BSD-3-Clause
// Making windows. All ranks of the communicator agree on each step before any goes on: a window is farside's on all
// of them, or the runtime's on all of them, or an error on all of them.
#pragma once

#include <mpi.h>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

struct CreationRequest {
  const char* call;        // MPI_Win_create, MPI_Win_allocate and so on
  int flavor;              // MPI_WIN_FLAVOR_*
  void* base;              // of MPI_Win_create, else null
  MPI_Aint size;           // bytes
  MPI_Aint displacement_unit;
  MPI_Info info;
  MPI_Comm communicator;
};

enum class Carrier { kFarside, kRuntime };

// Collective. kFarside: the window is made, `base` (its local memory) and `win` are set. kRuntime: farside cannot
// carry it and has said why; the caller asks the runtime. A Fault is the same decision on every rank.
Outcome create_window(const CreationRequest& request, void** base, MPI_Win* win, Carrier* carrier);

// Says once per reason that a window stays with the runtime, and counts it.
void leave_to_runtime(const char* call, const char* reason);

}  // namespace farside::pmpi
