// SPDX-License-Identifier: BSD-3-Clause
// Entry points: the start of MPI (MPI 4.0 section 11.2). Each call checks the program's runtime again, because the
// program may have loaded MPI after farside. It then calls the next MPI_Init in the search order. There is no alias
// PMPI_Init, because many tools for MPI start in their own MPI_Init, wherever they are in the search order.
#include <mpi.h>

#include "pmpi/observe/files_on_signal.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/fabric/libfabric_on_demand.hpp"

namespace {

// Calls the runtime's start, and begins what it makes possible.
template <class Start>
int started(Start&& start) {
  const farside::pmpi::HandlersOfLibraries handlers;
  const int code = start();
  if (code == MPI_SUCCESS) farside::start_libfabric_between_nodes();
  return code;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int MPI_Init(int* count, char*** words) {
  farside::pmpi::refuse_other_runtime();
  static auto* const next = reinterpret_cast<decltype(&MPI_Init)>(farside::pmpi::find_behind("MPI_Init"));
  return started([&] { return next(count, words); });
}

[[gnu::visibility("default")]] int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  farside::pmpi::refuse_other_runtime();
  static auto* const next =
      reinterpret_cast<decltype(&MPI_Init_thread)>(farside::pmpi::find_behind("MPI_Init_thread"));
  return started([&] { return next(count, words, required, provided); });
}

}  // extern "C"
