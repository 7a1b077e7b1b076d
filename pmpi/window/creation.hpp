// SPDX-License-Identifier: BSD-3-Clause
// Creation of windows: gather what this rank brings, agree with the others, build, commit. A window is farside's on all
// ranks of the communicator, or the runtime's on all, or an error on all. What can fail on one rank is done before the
// agreement, or in it.
//
// Thread safety: any thread; concurrent calls need different communicators. Cost: 3 reductions of at most 32 bytes, and
// two exchanges inside the node; more at the first window of a communicator (pmpi/windows.md). Memory: that of the
// space.
#pragma once

#include <cstddef>

#include <mpi.h>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

struct CreationRequest {
  const char* call;  // MPI_Win_create, MPI_Win_allocate and so on
  int flavor;        // MPI_WIN_FLAVOR_*
  void* base;        // for MPI_Win_create, else null
  MPI_Aint size;     // bytes
  MPI_Aint displacement_unit;
  MPI_Info info;
  MPI_Comm communicator;
};

enum class WindowOwner { kFarside, kRuntime };

// Collective. kFarside: the window is made, and `base` (its local memory) and `win` are set. kRuntime: farside cannot
// carry the window and has logged the reason; the caller calls the runtime's function. If one rank gets a Fault, all
// ranks do.
Outcome create_window(const CreationRequest& request, void** base, MPI_Win* win, WindowOwner* owner);

// Makes a handle of the runtime, which then keeps name, attributes and error handler. The call is local: the
// communicator has one rank. Which kinds of window Open MPI can make depends on the selected components.
Status make_handle(MPI_Win* handle);

}  // namespace farside::pmpi
