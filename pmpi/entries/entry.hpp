// SPDX-License-Identifier: BSD-3-Clause
// The common policy of the entry points: find the window, carry out the call, and turn a fault into a call of the
// window's error handler and a return code. Thread safety: any thread.
//
// Both MPI_X and PMPI_X are defined: tools call the second, and so do the runtimes' Fortran wrappers. MPI_X hands the
// call on to a tool behind farside, if there is one; fast paths are then off. runtime() has the runtime's own
// functions.
#pragma once

#include <mpi.h>

#include "pmpi/check/strict.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"

// The functions of a call, of which the body follows. `arguments`: the names of the parameters.
#define FARSIDE_ENTRY(name, parameters, arguments)                                                                 \
  static int carry_out_##name parameters;                                                                          \
  FARSIDE_FAST_ENTRY(name, parameters, arguments, carry_out_##name arguments) { return hand_on_##name arguments; } \
  static int carry_out_##name parameters
// The same for a call with a fast path, which is the body and ends with hand_on_X(). The last argument carries the call
// out slowly.
#define FARSIDE_FAST_ENTRY(name, parameters, arguments, ...)                                              \
  [[gnu::noinline]] static int hand_on_##name parameters {                                                \
    return tools_behind.name != nullptr ? tools_behind.name arguments : __VA_ARGS__;                      \
  }                                                                                                       \
  extern "C" [[gnu::visibility("hidden"), gnu::alias("MPI_" #name)]] decltype(MPI_##name) farside_##name; \
  extern "C" [[gnu::visibility("default")]] int PMPI_##name parameters {                                  \
    return tools_behind.name != nullptr ? __VA_ARGS__ : farside_##name arguments;                         \
  }                                                                                                       \
  extern "C" [[gnu::visibility("default")]] int MPI_##name parameters

// The same for a call whose fast path is the condition `tried`. It needs no frame and saves no registers for the slow
// path, which starts the call again.
#define FARSIDE_TRIED_ENTRY(name, parameters, arguments, tried, ...) \
  FARSIDE_FAST_ENTRY(name, parameters, arguments, __VA_ARGS__) {     \
    if (tried) [[likely]]                                            \
      return MPI_SUCCESS;                                            \
    return hand_on_##name arguments;                                 \
  }

// The function of a call that the runtime does not have: MPIX_X.
#define FARSIDE_OWN_ENTRY(name, parameters)                             \
  extern "C" [[gnu::visibility("default")]] int MPIX_##name parameters; \
  extern "C" [[gnu::visibility("default")]] int MPIX_##name parameters

namespace farside::pmpi {

// Carries out the call, and returns its return code, after the error handler if it failed.
template <class Body>
int in_call(Window& window, const MpiCall& call, Body&& body) {
  if (window.state().strict != nullptr) [[unlikely]]
    window.state().strict->call_begins();
  const Status status = without_bad_alloc([&]() -> Status {
    const CallReason reason(window.state(), call);
    return body(window);
  });
  if (status) [[likely]] {
    if (window.state().strict != nullptr) [[unlikely]]
      window.state().strict->call_ends();
    return MPI_SUCCESS;
  }
  return window.raise(call, status.error());
}

// Calls `body` with the farside window. For any other window, calls the runtime's function with the original arguments.
template <class Body, class Function, class... Args>
int on_window(MPI_Win win, const MpiCall& call, Body&& body, Function Runtime::*original, Args... args) {
  const auto [window, why_none] = library().windows.look_up(win);
  if (window == nullptr) [[unlikely]] {
    if (why_none != nullptr) return raise_without_window(call, why_none);
    return (runtime().*original)(args...);
  }
  return in_call(*window, call, body);
}

// The same for a call of farside's own: a window of the runtime is an error.
template <class Body>
int on_farside_window(MPI_Win win, const MpiCall& call, Body&& body) {
  const auto [window, why_none] = library().windows.look_up(win);
  if (window != nullptr) [[likely]]
    return in_call(*window, call, body);
  return why_none != nullptr ? raise_without_window(call, why_none) : raise_on_runtime_window(win, call);
}

// The slow path of a call: calls the member function `carry_out` of the window.
template <class Original, class... Args>
[[gnu::noinline]] int on_calls(const MpiCall& call, Status (Window::*carry_out)(Args...), Original Runtime::*original,
                               MPI_Win win, Args... arguments) {
  return on_window(
      win, call, [&](Window& w) { return (w.*carry_out)(arguments...); }, original, arguments..., win);
}

// The same for a call without a window: `body` returns the return code. Without memory it has changed nothing.
template <class Body>
int without_window(const char* call, Body&& body) {
  int code = MPI_SUCCESS;
  const Status status = without_bad_alloc([&] { code = body(); });
  return status ? code : raise_without_object(call, status.error());
}

// Tries the fast path of a call (the try_ functions).
template <class FastPath>
bool on_fast_path(MPI_Win win, FastPath&& fast_path) {
  Window* window = library().windows.find_fast(win);
  return window != nullptr && fast_path(*window);
}

}  // namespace farside::pmpi
