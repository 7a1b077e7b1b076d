// SPDX-License-Identifier: BSD-3-Clause
// A small window that each rank of a group uses in every way that matters: puts and gets under exclusive and shared
// locks, accumulates and fetch_and_op under lock_all, a contended lock, a fence. The data are checked.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

#include "tools/doctor/watchdog.hpp"
#include "tools/json.hpp"

namespace farside::tools {

// How this rank takes part. Each rank is the target of one origin, or of none.
struct WindowRole {
  std::string call;    // MPI_Win_allocate or MPI_Win_create
  std::string among;   // node, all
  std::string wanted;  // mapped, cma, fabric
  MPI_Comm comm = MPI_COMM_NULL;
  int target = MPI_PROC_NULL;  // the rank that this one accesses
  bool has_origin = false;     // whether some rank accesses this one
};

// Collective over role.comm. Returns an entry of windows[] (examination.hpp) without its rank. Errors are its
// `trouble`: the first call that has failed, with what farside says of it, or wrong data.
Json check_window(const WindowRole& role, Watchdog& watchdog);

// Returns what the window's info says, such as farside_route; empty if it says nothing.
std::string window_info(MPI_Win window, const char* key);

// The error of an MPI call, in words.
std::string mpi_error(const char* call, int code);

}  // namespace farside::tools
