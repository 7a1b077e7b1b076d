// SPDX-License-Identifier: BSD-3-Clause
// Entry points: the start of MPI (MPI 4.0 section 11.2). Each call checks the program's runtime again, and looks again
// for tools behind farside, because the program may have loaded them after farside.
#include "pmpi/entries/entry.hpp"
#include "pmpi/observe/files_on_signal.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/libfabric_on_demand.hpp"

namespace {

// Calls the runtime's start, and begins what it makes possible.
template <class Start>
int started(Start&& start) {
  const farside::pmpi::HandlersOfLibraries handlers;
  const int code = start();
  if (code != MPI_SUCCESS) return code;
  // The first window tries again, and reports the error.
  (void)farside::without_bad_alloc([]() -> farside::Status {
    farside::start_libfabric_between_nodes();
    return {};
  });
  return code;
}

}  // namespace

using namespace farside::pmpi;

FARSIDE_ENTRY(Init, (int* count, char*** words), (count, words)) {
  refuse_other_runtime();
  if (find_tools()) return farside_Init(count, words);
  return started([&] { return runtime().Init(count, words); });
}

FARSIDE_ENTRY(Init_thread, (int* count, char*** words, int required, int* provided),
              (count, words, required, provided)) {
  refuse_other_runtime();
  if (find_tools()) return farside_Init_thread(count, words, required, provided);
  return started([&] { return runtime().Init_thread(count, words, required, provided); });
}
