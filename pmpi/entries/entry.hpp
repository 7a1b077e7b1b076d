// SPDX-License-Identifier: BSD-3-Clause
// The policy that every entry point shares: whose window is it, do it, and turn a fault into the window's error
// handler and a return code.
//
// Both MPI_X and PMPI_X are defined, the second as an alias of the first: Open MPI's Fortran wrappers call PMPI_X,
// MPICH's call the one or the other. The runtime's own are behind runtime().
#pragma once

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_table.hpp"

#define FARSIDE_ENTRY(name, parameters)                                                                         \
  extern "C" [[gnu::visibility("default"), gnu::alias("MPI_" #name)]] decltype(MPI_##name) PMPI_##name;         \
  extern "C" [[gnu::visibility("default")]] int MPI_##name parameters

namespace farside::pmpi {

// What the call returns.
inline int end_call(Window& window, const CallSite& call, const Outcome& outcome) {
  if (outcome) [[likely]] return MPI_SUCCESS;
  return window.raise(call, outcome.fault());
}

// `body` gets the farside window; another window goes to the runtime's function with the original arguments.
template <class Body, class Function, class... Args>
int on_window(MPI_Win win, const CallSite& call, Body&& body, Function Runtime::*original, Args... args) {
  const auto [window, why_none] = WindowTable::instance().look_up(win);
  if (window == nullptr) [[unlikely]] {
    if (why_none != nullptr) return raise_without_window(call, why_none);
    return (runtime().*original)(args...);
  }
  return end_call(*window, call, body(*window));
}

// The fast path of a call (window_fast_path.hpp). Whoever gets false calls a function of its own, not inlined, which
// goes on from the start: this way needs no frame then, and nothing is saved for the other.
template <class Direct>
bool on_fast_path(MPI_Win win, Direct&& fast_path) {
  Window* window = WindowTable::instance().find(win);
  return window != nullptr && fast_path(*window);
}

}  // namespace farside::pmpi
